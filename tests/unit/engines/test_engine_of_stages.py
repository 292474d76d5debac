"""How a stage opens the configured engine.

Invariants: a request's model name carries the checkpoint's digest; logprobs are those of the
contract, for each nucleus; settings that decide no result come from `execution`; a domain without a
grammar refuses structured generation.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from genenv_core.config.load import resolve
from genenv_core.config.sections.compute import EngineKind
from genenv_core.engines.protocol import engine_module
from genenv_core.engines.transformers import engine as transformers
from genenv_core.engines.vllm import engine as vllm
from genenv_core.engines.vllm.server import VllmSetup
from genenv_core.errors import ConfigError
from tasks import generate_tasks
from tasks.policies.engine import engine_of
from tasks.stage import progress

DIGEST = "0123456789abcdef" * 4


@pytest.mark.parametrize("kind", get_args(EngineKind))
def test_each_kind_is_a_module_that_opens_an_engine(kind: Any) -> None:
    assert callable(import_module(engine_module(kind)).open_engine)


def context_of(*overrides: str, **more: Any) -> Any:
    config = resolve("tiny", overrides=list(overrides))
    durable = lambda: Path("/durable")  # noqa: E731
    return SimpleNamespace(config=config, execution=config.execution, durable=durable, **more)


def test_vllm_is_asked_for_the_checkpoint_by_its_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[Path, VllmSetup]] = []
    monkeypatch.setattr(vllm, "VllmEngine", lambda *given: opened.append(given))
    context = context_of(
        "compute.engine=vllm", "compute.vllm.dtype=float32", "execution.vllm.urls=[http://h:1]"
    )
    engine_of(context, Path("/model"), DIGEST, top_p=1.0)
    engine_of(context, Path("/model"), DIGEST, top_p=0.9)
    [(checkpoint, setup), (_, cut)] = opened
    assert checkpoint == Path("/model")
    assert setup == VllmSetup(
        name="genenv-0123456789abcdef",
        config=context.config.compute.vllm,
        serving=context.execution.vllm,
        log=Path("/durable/genenv-0123456789abcdef.log"),
        logprobs_mode="processed_logprobs",
        check=progress.check,
    )
    assert cut == replace(setup, logprobs_mode="raw_logprobs")


def test_transformers_needs_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    load = lambda checkpoint, **given: opened.append((checkpoint, given))  # noqa: E731
    monkeypatch.setattr(transformers.TransformersEngine, "load", load)
    context = context_of()
    context.durable = None  # it would make a folder
    engine_of(context, Path("/model"), DIGEST, top_p=1.0)
    engine_of(context_of("compute.device=cuda"), Path("/model"), DIGEST, top_p=1.0)
    threads = {"threads": 1}
    assert opened == [
        (Path("/model"), threads | {"device": "cpu"}),
        (Path("/model"), threads | {"device": "cuda"}),
    ]


def test_a_domain_without_a_grammar_refuses_structured_generation() -> None:
    context = context_of("compute.engine=vllm", "generation.structured=true")
    context.domain = lambda: SimpleNamespace(name="plain")
    context.inputs = SimpleNamespace(set_tasks=0)
    with pytest.raises(ConfigError, match="the domain plain has no grammar for pi_env"):
        generate_tasks._written(context)  # pyright: ignore[reportPrivateUsage]
