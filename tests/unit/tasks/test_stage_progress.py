"""The files of a stage that survive a crash, and the settings outside of its key.

Invariants: the durable folder of a key stays after a failure and goes after the commit; one that a
kill leaves after the commit does no harm; another key has another folder; the section `execution`
reaches a stage and changes no key; a stop is recorded as an interruption.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.errors import GenenvError, StageError, Stopped
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from tasks.stage import Stage, StageContext
from tasks.stage.execution import run_stage
from tests.unit.builders_stage import NO_INPUTS

TOY = Stage("toy", ("tasks.toy",), ("rwr.steps",))


def config_of(root: Path, *overrides: str) -> RunConfig:
    fields = {"root": str(root), "run_id": "toy"}
    return resolve("tiny", overrides=overrides, fields=fields)


def run(config: RunConfig, compute: Callable[[StageContext[Any]], dict[str, Any]]) -> bool:
    """Run the toy stage; returns whether it was reused."""
    return run_stage(TOY, compute, config, 1, NO_INPUTS)[1]


def leave(error: GenenvError) -> Callable[[StageContext[Any]], dict[str, Any]]:
    def compute(context: StageContext[Any]) -> dict[str, Any]:
        (context.durable() / "half").write_text("done")
        raise error

    return compute


def folders(root: Path) -> list[Path]:
    return sorted((root / "progress" / "toy").glob("*"))


def test_the_durable_folder_survives_a_failure_and_goes_after_the_commit(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    with pytest.raises(StageError, match="broken"):
        run(config, leave(StageError("broken")))
    (left,) = folders(tmp_path)
    assert (left / "half").read_text() == "done"

    def finish(context: StageContext[Any]) -> dict[str, Any]:
        return {"half": (context.durable() / "half").read_text()}

    assert run(config, finish) is False
    assert folders(tmp_path) == []
    left.mkdir()  # as a kill between the commit and the removal leaves it
    assert run(config, leave(StageError("never called"))) is True


def test_another_key_has_another_folder(tmp_path: Path) -> None:
    for steps in (3, 4):
        with pytest.raises(StageError):
            run(config_of(tmp_path, f"rwr.steps={steps}"), leave(StageError("broken")))
    assert len(folders(tmp_path)) == 2


def test_execution_reaches_a_stage_and_changes_no_key(tmp_path: Path) -> None:
    seen: list[float] = []

    def compute(context: StageContext[Any]) -> dict[str, Any]:
        seen.append(context.execution.checkpoint_seconds)
        return {}

    assert run(config_of(tmp_path, "execution.checkpoint_seconds=7"), compute) is False
    assert run(config_of(tmp_path, "execution.checkpoint_seconds=0"), compute) is True
    assert seen == [7]


def test_a_stop_is_an_interruption_and_leaves_unchanged(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    with pytest.raises(Stopped, match="after step 3"):
        run(config, leave(Stopped("stopped after step 3")))
    attempts = RunLog(LocalStore(tmp_path), "toy").attempts()
    assert [attempt.state for attempt in attempts] == ["interrupted"]
    assert len(folders(tmp_path)) == 1
