"""Stages of a run that reads from other roots, without a Prefect server.

Invariants: a stage that another root has is reused, and says whose it was; one that the own root
has is asked for nowhere else; a plan shows where a stage would come from and copies nothing; what
another root has not is computed; a root that cannot be read is told to people once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.errors import ConfigError, StorageError
from genenv_core.storage.records.readers import Readers, check_readers
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from schemas.enums import StageState
from tasks.stage import Stage, StageContext
from tasks.stage.execution import StageOutcome, run_stage
from tasks.stage.planning import is_stored, planned
from tasks.stage.progress import Event, listening
from tasks.upkeep.opening import open_run
from tests.mutations import mutation
from tests.unit.builders_stage import NO_INPUTS, NoInputs

TOY = Stage("score", ("tasks.score",), ())


def configured(root: Path, run: str, *read: Path) -> RunConfig:
    settings = [f"roots.read=[{', '.join(map(str, read))}]"]
    config = resolve("tiny", overrides=settings, fields={"root": str(root), "run_id": run})
    open_run(config, {})
    return config


def compute(context: StageContext[NoInputs]) -> dict[str, Any]:
    return {"n": 1}


def never(context: StageContext[NoInputs]) -> dict[str, Any]:
    raise AssertionError("it is there")


def play(config: RunConfig, how: Any = compute) -> StageOutcome:
    return run_stage(TOY, how, config, 1, NO_INPUTS)


def test_a_stage_of_another_root_is_reused_and_says_whose_it_was(tmp_path: Path) -> None:
    team, own = tmp_path / "team", tmp_path / "own"
    play(configured(team, "theirs"))
    config = configured(own, "mine", team)
    check_readers(config.root, config.roots.read)
    plan = planned(TOY, config, 1, NO_INPUTS)
    assert (plan.status, plan.root) == ("hit", str(team)) and is_stored(TOY, config, 1, NO_INPUTS)
    assert LocalStore(own).list("stages") == []
    heard: list[Event] = []
    with listening(heard.append):
        used = play(config, never)
    assert used.reused and used.origin and used.origin.root == str(team)
    (told,) = [event.message for event in heard if event.kind == "finished"]
    assert told.startswith(f"computed by run theirs of {team} on 20") and " UTC in " in told
    (cached,) = RunLog(LocalStore(own), "mine").attempts()
    assert cached.state is StageState.CACHED
    assert (cached.computed_by, cached.computed_root) == ("theirs", str(team))
    again = planned(TOY, config, 1, NO_INPUTS)
    assert (again.status, again.root) == ("hit", "")


@mutation(
    "a stage of the own root is asked for in other roots", "tasks/stage/execution.py",
    "manifest = call.find() or readers_of(config).take_in(stage.name, call.key)",
    "manifest = readers_of(config).take_in(stage.name, call.key) or call.find()",
)  # fmt: skip
def test_a_stage_of_the_own_root_is_asked_for_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team, own = tmp_path / "team", tmp_path / "own"
    play(configured(team, "theirs"))
    play(configured(own, "first"))
    config = configured(own, "mine", team)
    asked: list[str] = []
    for name in ("find", "take_in"):
        monkeypatch.setattr(Readers, name, lambda *call: asked.append(call[1]))
    assert play(config, never).reused and planned(TOY, config, 1, NO_INPUTS).status == "hit"
    assert is_stored(TOY, config, 1, NO_INPUTS) and asked == []


def test_what_another_root_has_not_is_computed_and_one_that_is_away_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team, own = tmp_path / "team", tmp_path / "own"
    configured(team, "theirs")
    assert not play(configured(own, "mine", team)).reused
    read = LocalStore.read

    def away(self: LocalStore, path: str) -> bytes:
        if self.uri == str(team):
            raise StorageError("no answer")
        return read(self, path)

    monkeypatch.setattr(LocalStore, "read", away)
    heard: list[Event] = []
    with listening(heard.append):
        for epoch in (2, 3):
            config = configured(own, "mine", team)
            assert not run_stage(TOY, compute, config, epoch, NO_INPUTS).reused
    (told,) = [event.message for event in heard if event.kind == "root"]
    assert told.startswith(f"roots.read {team} cannot be read: no answer")
    with pytest.raises(ConfigError, match=r"^roots\.read .* own root: leave it out"):
        check_readers(str(own), [str(own)])
