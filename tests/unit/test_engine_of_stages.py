"""How a stage opens the configured engine.

Invariants: the model that a server is asked for carries the checkpoint's digest; logprobs are those
that the contract means, for each nucleus; what decides no result comes from `execution`; a domain
without a grammar refuses structured generation.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from genenv_core.config.load import resolve
from genenv_core.engines import registry
from genenv_core.engines.vllm.setup import VllmSetup
from genenv_core.errors import ConfigError
from tasks import generate_tasks, progress
from tasks.engine import engine_of

DIGEST = "0123456789abcdef" * 4


def context_of(*overrides: str, **more: Any) -> Any:
    config = resolve("tiny", overrides=list(overrides))
    durable = lambda: Path("/durable")  # noqa: E731
    return SimpleNamespace(config=config, execution=config.execution, durable=durable, **more)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, int, VllmSetup | None]]:
    calls: list[tuple[Path, int, VllmSetup | None]] = []

    def opener(checkpoint: Path, threads: int, vllm: VllmSetup | None) -> Any:
        calls.append((checkpoint, threads, vllm))

    for kind in ("transformers", "vllm"):
        monkeypatch.setitem(registry.ENGINES, kind, opener)
    return calls


def test_vllm_is_asked_for_the_checkpoint_by_its_digest(opened: Any) -> None:
    context = context_of(
        "compute.engine=vllm", "compute.vllm.dtype=float32", "execution.vllm.urls=[http://h:1]"
    )
    engine_of(context, Path("/model"), DIGEST, top_p=1.0)
    engine_of(context, Path("/model"), DIGEST, top_p=0.9)
    [(checkpoint, threads, setup), (_, _, cut)] = opened
    assert (checkpoint, threads) == (Path("/model"), 1)
    assert setup == VllmSetup(
        name="genenv-0123456789abcdef",
        config=context.config.compute.vllm,
        serving=context.execution.vllm,
        log=Path("/durable/genenv-0123456789abcdef.log"),
        logprobs_mode="processed_logprobs",
        check=progress.check,
    )
    assert cut == replace(setup, logprobs_mode="raw_logprobs")


def test_transformers_needs_none_of_it(opened: Any) -> None:
    engine_of(context_of(), Path("/model"), DIGEST, top_p=1.0)
    assert opened == [(Path("/model"), 1, None)]


def test_a_domain_without_a_grammar_refuses_structured_generation() -> None:
    context = context_of("compute.engine=vllm", "generation.structured=true")
    context.domain = lambda: SimpleNamespace(name="plain")
    with pytest.raises(ConfigError, match="the domain plain has no grammar for pi_env"):
        generate_tasks._sample(context, None, None)  # pyright: ignore[reportPrivateUsage, reportArgumentType]
