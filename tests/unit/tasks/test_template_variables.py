"""Variables of the chat templates, from the configuration to where stages load a template.

Invariant: each policy's template gets the variables of that policy, in every stage that renders it.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tasks.evaluate
import tasks.generate_tasks
import tasks.rollout
from genenv_core.config.load import resolve
from genenv_core.storage.records.manifest import FileRef, TeacherRef
from tasks.policies import sampler
from tasks.stage import Stage
from tasks.stage.key import ConfigView
from tests.mutations import mutation

CONFIG = resolve(
    "tiny",
    overrides=[
        "models={agent: ./agent, agent_chat_template_kwargs: {thinking: false}, "
        "env: ./env, env_chat_template_kwargs: {depth: 2}}"
    ],
)
AGENT, ENV = ("agent", {"thinking": False}), ("env", {"depth": 2})


def context_of(stage: Stage) -> Any:
    """Return what a stage sees; a checkpoint is named by its policy."""
    return SimpleNamespace(
        config=ConfigView(CONFIG, stage),
        inputs=SimpleNamespace(env=SimpleNamespace(name="env"), set_tasks=0),
        checkpoint=lambda ref: Path(ref.name),
        domain=lambda: None,
    )


@mutation(
    "pi_env's template gets the agent's variables", "tasks/policies/sampler.py",
    "config.models.env_chat_template_kwargs", "config.models.agent_chat_template_kwargs",
)  # fmt: skip
def test_each_template_gets_its_policys_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, Any]] = []

    class Loaded(Exception):
        pass

    class Format:
        @staticmethod
        def load(folder: Path, variables: Any = None) -> None:
            seen.append((folder.name, variables))
            if stop:
                raise Loaded

    for name in ("engine_of", "Simulator", "Simulation"):
        monkeypatch.setattr(sampler, name, lambda *_, **__: SimpleNamespace(close=print))
    monkeypatch.setattr(sampler, "ChatFormat", Format)
    monkeypatch.setattr(tasks.generate_tasks, "ChatFormat", Format)
    monkeypatch.setattr(tasks.generate_tasks, "grammar_of", lambda *_: None)
    agent, env = (SimpleNamespace(name=name, digest="d") for name in ("agent", "env"))
    stop, given = False, ExitStack()
    sampler.Sampler(context_of(tasks.rollout.STAGE), agent, env, given)  # type: ignore[arg-type]
    sampler.Sampler(context_of(tasks.evaluate.STAGE), agent, None, given)  # type: ignore[arg-type]
    stop = True
    with pytest.raises(Loaded):
        tasks.generate_tasks._written(context_of(tasks.generate_tasks.STAGE))
    model = FileRef(path="/teacher", sha256="d" * 64)
    teacher = TeacherRef(model, {"enable_thinking": False}, None, None, {})
    opening = tasks.generate_tasks._opened(context_of(tasks.generate_tasks.STAGE), teacher)
    with pytest.raises(Loaded), opening:
        pass
    assert seen == [AGENT, ENV, AGENT, ENV, ("teacher", {"enable_thinking": False})]
