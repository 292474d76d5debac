"""Engines by kind. Importing this imports no torch: an engine's module loads when it is opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from genenv_core.engines.base import Engine
from genenv_core.engines.vllm.setup import VllmSetup
from genenv_core.errors import ConfigError


def _transformers(checkpoint: Path, threads: int, vllm: VllmSetup | None) -> Engine:
    """Return the in-process engine on a checkpoint directory."""
    from genenv_core.engines.transformers_engine import TransformersEngine

    return TransformersEngine.load(checkpoint, threads=threads)


def _vllm(checkpoint: Path, threads: int, vllm: VllmSetup | None) -> Engine:
    """Return the engine behind vLLM servers."""
    from genenv_core.engines.vllm.engine import VllmEngine

    if vllm is None:
        raise ConfigError("engine vllm needs its settings: the model's name, version, log")
    return VllmEngine(checkpoint, vllm)


ENGINES: dict[str, Callable[[Path, int, VllmSetup | None], Engine]] = {
    "transformers": _transformers,
    "vllm": _vllm,
}
"""Kind -> opener, called with the checkpoint, the number of CPU threads, and vllm's settings."""


def open_engine(
    kind: str, checkpoint: Path, *, threads: int, vllm: VllmSetup | None = None
) -> Engine:
    """Return an engine of this kind on the checkpoint; close it when done.

    Raises `ConfigError` for an unknown kind, `ModelError` for a checkpoint it cannot use.
    """
    if kind not in ENGINES:
        raise ConfigError(f"engine kind {kind!r} is unknown; set one of {sorted(ENGINES)}")
    return ENGINES[kind](checkpoint, threads, vllm)
