"""What a stage keeps through a crash, and what it reads beside its key.

Invariants: the durable folder of a key is there again after a failure and gone after the commit,
also one that a kill left behind the commit harms nobody; another key has another folder; the
section `execution` reaches a stage and changes no key; a stop is recorded as an interruption.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.errors import GenenvError, StageError, Stopped
from genenv_core.storage.local import LocalStore
from genenv_core.storage.runs import RunLog
from tasks.stage import Stage, StageContext
from tasks.stage.execution import run_stage

TOY = Stage("toy", ("tasks.toy",), ("rwr.steps",))


def config_of(root: Path, *overrides: str) -> RunConfig:
    fields = {"root": str(root), "run_id": "toy"}
    return resolve("tiny", overrides=overrides, fields=fields)


def run(config: RunConfig, compute: Callable[[StageContext], dict[str, Any]]) -> bool:
    """Run the toy stage; returns whether it was reused."""
    return run_stage(TOY, compute, config, 1, {})[1]


def leave(error: GenenvError) -> Callable[[StageContext], dict[str, Any]]:
    def compute(context: StageContext) -> dict[str, Any]:
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

    def finish(context: StageContext) -> dict[str, Any]:
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

    def compute(context: StageContext) -> dict[str, Any]:
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
