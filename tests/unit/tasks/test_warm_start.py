"""The rounds of a warm start in their stage, with the real trainer on a tiny model.

Invariants: rounds end on the bits of one update over all their rows; a stage that was killed in a
round, while one is made durable, or after that does no finished round again and ends on the same
bits; a damaged round is ignored with a warning; every step is reported, those of earlier rounds
included; what is left in the durable folder is the newest round.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from genenv_core.canonical import file_sha256
from genenv_core.config.sections.training import TrainingConfig
from genenv_core.config.sections.warm_start import WarmStartConfig
from genenv_core.training.requests import UpdateResult
from genenv_core.training.updates.table import run_update
from genenv_core.training.updates.warm_start import SftRequest
from genenv_core.types import Policy
from tasks import warm_start
from tasks.policies import noted, rounds
from tests.mutations import mutation
from tests.unit.training.builders_training import random_rows, sft_of, tiny_checkpoint

STAGE = "tasks/warm_start.py"
ROUNDS = "tasks/policies/rounds.py"
SETTINGS = WarmStartConfig(
    steps=3, round_steps=2, batch_rows=2, learning_rate=1e-2, probe_rows=8, agent_target=1
)
ROWS = random_rows(6, seed=3)


class Killed(BaseException):
    """Simulates the end of the process; no handler of a stage may catch it."""


class Context:
    """The context of one attempt at the stage; attempts share the durable folder."""

    execution = SimpleNamespace(gradient_checkpointing="none", checkpoint_seconds=1e6)
    config = SimpleNamespace(
        warm_start=SETTINGS, training=TrainingConfig(), compute=SimpleNamespace(threads=1)
    )

    def __init__(self, home: Path, attempt: str) -> None:
        self.work, self._durable, self._given = home / attempt, home / "durable", home / "given"
        self.work.mkdir()
        self._durable.mkdir(exist_ok=True)
        self.told = list[tuple[int, int, str, str]]()

    def checkpoint(self, ref: Any) -> Path:
        return self._given

    def durable(self) -> Path:
        return self._durable

    def seed_for(self, *parts: str | int) -> int:
        return 7

    def domain(self) -> None:
        return None

    def progress(self, done: int, total: int, unit: str, *, part: str, message: str) -> None:
        self.told.append((done, total, part, message))


class Play:
    """Plays the stage for pi_agent; `updates` are the requests that were carried out."""

    def __init__(self, home: Path) -> None:
        self.home, self.updates = home, list[SftRequest]()
        self.update: Callable[[SftRequest], UpdateResult] = run_update

    def computed(self, request: SftRequest) -> UpdateResult:
        self.updates.append(request)
        return self.update(request)

    def __call__(self, attempt: str) -> tuple[str, dict[str, float], Context]:
        """Return the digest of the weights, the facts and the context of an attempt."""
        self.updates.clear()
        context: Any = Context(self.home, attempt)
        start: Any = SimpleNamespace(digest="given")
        folder, told = warm_start._taught(context, Policy.AGENT, start)
        return file_sha256(folder / "model.safetensors"), told, context


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("model") / "given", seed=1)


@pytest.fixture(scope="module")
def whole(given: Path) -> tuple[str, dict[str, float]]:
    """Return the digest of the weights and the metrics of one update over all rows."""
    values = SETTINGS.model_dump(exclude_unset=True)
    made = run_update(sft_of(given.parent, "whole", ROWS, given, seed=7, **values))
    return file_sha256(made.checkpoint / "model.safetensors"), made.metrics


@pytest.fixture(name="play")
def a_stage(given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    (tmp_path / "given").symlink_to(given)
    play = Play(tmp_path)

    def rows(chat: Any, examples: list[int], tools: Any) -> pl.DataFrame:
        return pl.DataFrame([ROWS[one] | {"row_id": f"r{one}"} for one in examples])

    def taught(policy: Policy, first: int, count: int) -> list[int]:
        return list(range(first, first + count))

    lessons = SimpleNamespace(taught=taught)
    for name, value in {
        "_lessons": lambda *_: lessons,
        "_chat": lambda *_: None,
        "tools_of": lambda *_: (),
        "_look": lambda *_: (1, 8),
        "lesson_rows": rows,
        "trainer": lambda: SimpleNamespace(update=play.computed),
    }.items():
        monkeypatch.setattr(warm_start, name, value)
    return play


@mutation(
    "each round of a warm start follows none", STAGE,
    "follows=rounds.folder(last.number) / STATE if last.number else None", "follows=None",
)  # fmt: skip
@mutation(
    "steps of a warm start are counted anew in each round", STAGE,
    "with shown_steps(context, asked.noted, settings.steps, part=part, before=last.steps):",
    "with shown_steps(context, asked.noted, settings.steps, part=part):",
)  # fmt: skip
@mutation(
    "finished rounds pile up", ROUNDS,
    "if path != target and _number(path) <= number:", "if False:",
)  # fmt: skip
def test_rounds_end_as_one_update_does_and_report_each_step(
    play: Play, whole: tuple[str, dict[str, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noted, "SHOWN_S", 1e-4)
    sha256, told, context = play("attempt")
    assert (sha256, {name: told[name] for name in whole[1]}) == whole
    assert (told["steps"], told["reached"]) == (3, 1 / 8)
    assert [one.follows is None for one in play.updates] == [True, False]
    steps = [done for done, *_ in context.told]
    assert steps == sorted(steps) and {0, 2, 3} <= set(steps)
    assert {(total, part) for _, total, part, _ in context.told} == {(3, "pi_agent")}
    assert context.told[-1][3] == f"loss {told['loss']:.3f}, 1 of 8 answers right"
    assert [path.name for path in context.durable().iterdir()] == ["agent-2"]
    assert [path.name for path in context.work.iterdir() if path.is_dir()] == ["agent-2"]


def in_an_update(play: Play, patch: pytest.MonkeyPatch) -> None:
    def compute(request: SftRequest) -> UpdateResult:
        if request.follows is not None:
            raise Killed
        return run_update(request)

    play.update = compute


def while_it_is_kept(play: Play, patch: pytest.MonkeyPatch) -> None:
    rename = os.rename

    def renamed(source: Path, target: Path) -> None:
        if target.name == "agent-2":
            raise Killed
        rename(source, target)

    patch.setattr(rounds.os, "rename", renamed)


def after_it_is_kept(play: Play, patch: pytest.MonkeyPatch) -> None:
    def looked(*given: Any) -> tuple[int, int]:
        if given[-1] == 2:
            raise Killed
        return 1, 8

    patch.setattr(warm_start, "_look", looked)


KILLS = {in_an_update: 1, while_it_is_kept: 1, after_it_is_kept: 0}
"""Where a stage is killed about its second round, and how many updates it does afterwards."""


@mutation(
    "a warm start that was killed begins at the given model", STAGE,
    "last = rounds.newest()", "last = Round()",
)  # fmt: skip
@mutation(
    "a round is there before its files are", ROUNDS,
    'staged = self._kept / f"{target.name}-{uuid.uuid4().hex}"', "staged = target",
    by="[while_it_is_kept]",
)  # fmt: skip
@pytest.mark.parametrize("kill", KILLS, ids=lambda kill: kill.__name__)
def test_a_stage_that_was_killed_goes_on_after_its_last_round(
    play: Play,
    whole: tuple[str, dict[str, float]],
    kill: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        kill(play, patch)
        with pytest.raises(Killed):
            play("killed")
    play.update = run_update
    with caplog.at_level(logging.INFO, "genenv.stage"):
        sha256, told, _ = play("again")
    assert (sha256, {name: told[name] for name in whole[1]}) == whole
    assert len(play.updates) == KILLS[kill]
    assert f"part=pi_agent resumed_at={3 - KILLS[kill]}" in caplog.text
    assert [path.name for path in (tmp_path / "durable").iterdir()] == ["agent-2"]


@mutation(
    "a damaged round is gone on with", ROUNDS,
    'flaw = "" if found.digests == self._digests(number) else', 'flaw = "" if True else',
)  # fmt: skip
@pytest.mark.parametrize("part", ["checkpoint/model.safetensors", "round.json"])
def test_a_damaged_round_is_ignored(
    play: Play, part: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sha256, told, _ = play("never damaged")
    damaged = tmp_path / "durable" / "agent-2" / part
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with caplog.at_level(logging.WARNING, "genenv.stage"):
        assert play("again")[:2] == (sha256, told)
    assert len(play.updates) == 2
    (line,) = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert line.startswith(f"round {tmp_path}/durable/agent-2 ignored: ")
