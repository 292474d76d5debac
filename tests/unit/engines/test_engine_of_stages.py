"""How a stage opens the configured engine.

Invariants: a request's model name carries the checkpoint's digest; logprobs are those of the
contract, for each nucleus; settings that decide no result come from `execution`; a domain without a
grammar refuses structured generation; code that asks for an engine by its name is listed here, and
was decided on for each engine that there is.
"""

from __future__ import annotations

import ast
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
from tasks.stage.key import GRAMMARS
from tests.mutations import mutation
from tests.unit.test_layers import LAYERS, REPOSITORY

DIGEST = "0123456789abcdef" * 4

KEY = "tasks/stage/key.py"
COMPUTE = "genenv_core/config/sections/compute.py"

BY_NAME = {
    ("tasks/policies/sampler.py", "config.compute.engine == 'vllm'"): "answers of tools by grammar",
    ("tasks/rwr_update.py", "config.compute.engine == 'vllm'"): "answers of tools by grammar",
    ("tasks/stage/key.py", "config.compute.engine == 'vllm'"): "whether it samples on a processor",
    (
        "flows/replaying.py",
        "(compute.engine, compute.device, compute.threads) == ('transformers', 'cpu', 1)",
    ): "whether equal bits are promised",
}
"""Comparisons with the name of an engine, by file: what each decides. An engine that they do not
name counts as the other one."""

DECIDED = ("transformers", "vllm")
"""Engines for which every place of `BY_NAME` was read and is right."""


@mutation(
    "nobody says by which libraries an engine holds a grammar", KEY, ', "vllm": ()}', "}",
    by="[vllm]",
)  # fmt: skip
@pytest.mark.parametrize("kind", get_args(EngineKind))
def test_each_kind_is_a_module_that_opens_an_engine_and_names_its_libraries(kind: Any) -> None:
    assert callable(import_module(engine_module(kind)).open_engine)
    assert kind in GRAMMARS, f"name in GRAMMARS of {KEY} by which libraries {kind} holds a grammar"


@mutation(
    "an engine is added and nobody looks where engines are told apart", COMPUTE,
    'Literal["transformers", "vllm"]', 'Literal["transformers", "vllm", "third"]',
)  # fmt: skip
def test_places_that_ask_for_an_engine_by_name_were_decided_for_each() -> None:
    added = sorted({*get_args(EngineKind)} ^ {*DECIDED})
    places = "".join(f"\n  {file}: {text}: {why}" for (file, text), why in BY_NAME.items())
    assert not added, f"decide for {', '.join(added)} in each place, then name it here:{places}"


@mutation(
    "code asks for an engine by its name in a new place", "tasks/stage/key.py",
    'if "training" in stage.reads and config.training.own_processes:',
    'if config.compute.engine == "vllm" and config.training.own_processes:',
)  # fmt: skip
def test_each_place_that_asks_for_an_engine_by_name_is_listed() -> None:
    found = [
        (file.relative_to(REPOSITORY).as_posix(), ast.unparse(node))
        for layer in LAYERS
        for file in (REPOSITORY / layer).rglob("*.py")
        if ".engine" in (source := file.read_text())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare | ast.Match) and _names_an_engine(node)
    ]
    assert sorted(found) == sorted(BY_NAME)


def _names_an_engine(node: ast.AST) -> bool:
    """Return whether a comparison has a field `engine` in it, and the name of an engine."""
    inner = list(ast.walk(node))
    kinds = get_args(EngineKind)
    return any(isinstance(one, ast.Attribute) and one.attr == "engine" for one in inner) and any(
        isinstance(one, ast.Constant) and one.value in kinds for one in inner
    )


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
