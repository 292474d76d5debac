"""Who computed what a run reuses.

Invariants: a reused stage names the run that computed it, when, and its seconds, in the attempt, in
the event and in the copy of the run; a process killed between manifest and note is found in its
run's history, and noted for others; one that loses a race notes nothing; gc takes the note with the
manifest; without a note the stage is reused all the same.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.storage import paths
from genenv_core.storage.records.origins import Origin, find_origin
from genenv_core.storage.records.runs import RunLog, StageAttempt
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.collected import CollectionRule
from genenv_core.storage.upkeep.copying import copy_run
from genenv_core.storage.upkeep.gc import collect
from genenv_core.storage.upkeep.verify import ORIGIN, verify
from schemas.enums import StageState
from tasks.stage import Stage, StageContext, execution
from tasks.stage.execution import StageOutcome, run_stage
from tasks.stage.progress import Event, listening
from tasks.upkeep.opening import open_run
from tests.mutations import mutation
from tests.unit.builders_runs import age
from tests.unit.builders_stage import NO_INPUTS, NoInputs

EXECUTION = "tasks/stage/execution.py"

TOY = Stage("score", ("tasks.score",), ())


def configured(root: Path, run: str) -> RunConfig:
    config = resolve("tiny", fields={"root": str(root), "run_id": run})
    open_run(config, {})
    return config


def compute(context: StageContext[NoInputs]) -> dict[str, Any]:
    return {"n": 1}


def play(root: Path, run: str) -> StageOutcome:
    return run_stage(TOY, compute, configured(root, run), 1, NO_INPUTS)


def attempts(root: Path, run: str) -> list[StageAttempt]:
    return RunLog(LocalStore(root), run).attempts()


@mutation(
    "a reused stage does not say whose it is", EXECUTION,
    "            **computed_then(origin),\n", "",
)  # fmt: skip
def test_a_reused_stage_names_the_run_that_computed_it(tmp_path: Path) -> None:
    made = play(tmp_path, "first")
    assert (made.reused, made.origin) == (False, None)
    (computed,) = attempts(tmp_path, "first")
    assert computed.computed_by is None  # its own row says it
    heard: list[Event] = []
    with listening(heard.append):
        used = play(tmp_path, "second")
    assert used.reused and used.origin is not None and used.origin.run_id == "first"
    (cached,) = attempts(tmp_path, "second")
    assert cached.state is StageState.CACHED
    assert (cached.computed_by, cached.computed_at) == ("first", computed.started_at)
    assert cached.computed_seconds is not None and computed.seconds is not None
    assert 0 <= cached.computed_seconds <= computed.seconds
    (told,) = [event.message for event in heard if event.kind == "finished"]
    assert told.startswith("computed by run first on 20") and " UTC in " in told


def test_a_copy_knows_it_too_and_keeps_its_own(tmp_path: Path) -> None:
    play(tmp_path / "a", "first")
    play(tmp_path / "b", "own")  # the same stage, computed there
    key = attempts(tmp_path / "a", "first")[0].stage_key
    for name, expected in (("b", "own"), ("c", "first")):
        copy_run(LocalStore(tmp_path / "a"), LocalStore(tmp_path / name), "first")
        found = find_origin(LocalStore(tmp_path / name), "score", key)
        assert found is not None and found.run_id == expected


def test_a_process_killed_before_its_note_is_found_in_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(execution, "note_origin", killed)
        with pytest.raises(Killed):
            play(tmp_path, "first")
    again = play(tmp_path, "first")
    assert again.reused and again.origin is not None and again.origin.run_id == "first"
    other = play(tmp_path, "second")
    assert other.origin == again.origin
    assert attempts(tmp_path, "second")[0].computed_by == "first"


@mutation(
    "one that loses the race says that it computed the stage", EXECUTION,
    "        if won:\n            note_origin", "        if True:\n            note_origin",
)  # fmt: skip
def test_one_that_loses_the_race_notes_nothing(tmp_path: Path) -> None:
    def overtaken(context: StageContext[NoInputs]) -> dict[str, Any]:
        # Another process commits the same key meanwhile, and notes itself.
        run_stage(TOY, compute, configured(tmp_path, "winner"), 1, NO_INPUTS)
        return {"n": 1}

    config = configured(tmp_path, "loser")
    leases = execution.leases_of
    from genenv_core.storage.store.leases import Leases

    class Free(Leases):
        """Leases that everybody gets."""

    with pytest.MonkeyPatch.context() as patch:
        import contextlib

        patch.setattr(Free, "hold", lambda *_, **__: contextlib.nullcontext())
        patch.setattr(execution, "leases_of", lambda root: Free(leases(root)._store))
        run_stage(TOY, overtaken, config, 1, NO_INPUTS)
    key = RunLog(LocalStore(tmp_path), "loser").keys(1)["score"]
    found = find_origin(LocalStore(tmp_path), "score", key)
    assert found is not None and found.run_id == "winner"


def test_without_a_note_the_stage_is_reused_all_the_same(tmp_path: Path) -> None:
    play(tmp_path, "first")
    store = LocalStore(tmp_path)
    path = paths.origin("score", RunLog(store, "first").keys(1)["score"])
    store.delete(path)
    used = play(tmp_path, "second")
    assert (used.reused, used.origin) == (True, None)
    assert attempts(tmp_path, "second")[0].computed_by is None
    store.create(path, b"{}")
    assert play(tmp_path, "third").origin is None
    assert [(d.path, d.remedy) for d in verify(store).damaged] == [(path, ORIGIN)]


def test_the_note_goes_with_the_manifest(tmp_path: Path) -> None:
    play(tmp_path, "first")
    store = LocalStore(tmp_path)
    assert len(store.list("origins")) == 1 and verify(store).unknown == []
    age(store)
    collect(store, CollectionRule(drop_run="first"), datetime.now(UTC), dry_run=False)
    assert store.list("origins") == store.list("stages") == []


def test_seconds_are_left_out_where_they_are_unknown() -> None:
    at = datetime(2026, 11, 1, tzinfo=UTC)
    origin = Origin(stage="score", key="k", run_id="r", host="h", started_at=at)
    assert str(origin) == "computed by run r on 2026-11-01 00:00 UTC"
