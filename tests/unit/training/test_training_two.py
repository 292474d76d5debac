"""Two processes that work on one update, because one of them lost its stage's lease.

Invariants: both end on the bits of an undisturbed update; the second one does not touch the folder
of the first and logs that it starts at the beginning; one that waits until the first has ended
continues from its checkpoint; a checkpoint sealed without a file that the Trainer would silently
miss is ignored with a warning.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from genenv_core.training.loop import checkpoints
from genenv_core.training.loop.checkpoints import CheckpointKeeper
from genenv_core.training.processes.workers import WorkerTrainer
from genenv_core.training.requests import UpdateResult
from tests.examples import some
from tests.unit.training.builders_training import tiny_checkpoint
from tests.unit.training.test_training_resume import (
    STATE_FILE,
    Case,
    Request,
    assert_same,
    grpo_request,
    interrupted,
    kept,
    update,
    weights_sha256,
)
from tests.waiting import BOUND_S

SEALED = (STATE_FILE, "trainer_state.json", "update.json")


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Return an update of 6 steps and its uninterrupted result."""
    home = tmp_path_factory.mktemp("two")
    tiny_checkpoint(home / "policy", seed=1)
    request = grpo_request(home)
    result = update(request)
    assert result.steps == 6
    return Case(request, result, weights_sha256(result))


def _impatient(request: Request) -> UpdateResult:
    """Compute an update in a worker process without waiting for the folder."""
    checkpoints.LOCK_WAIT_S = 0.1
    return update(request)


@pytest.mark.slow
def test_a_process_that_was_stopped_and_the_one_that_took_over_end_on_the_same_bits(
    tmp_path: Path, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = kept(case, tmp_path)
    assert stopped.checkpoints is not None
    other = stopped.model_copy(update={"output": tmp_path / "other"})
    folder = stopped.checkpoints.folder
    trainer, results = WorkerTrainer(), list[UpdateResult]()
    original = CheckpointKeeper._seal

    def seal(self: Any, made: Path, step: int) -> None:
        if step == 3:  # all its files are written; here the other one deleted or sealed them
            before = {path.name for path in made.iterdir()}
            results.append(trainer._call(_impatient, other, "it", "grpo.micro_batch_rows"))
            assert {path.name for path in made.iterdir()} == before
            assert {path.name for path in folder.iterdir()} == {
                "checkpoint-2",
                "checkpoint-3",
                "lock",
            }
        original(self, made, step)

    monkeypatch.setattr(CheckpointKeeper, "_seal", seal)
    try:
        assert_same(case, update(stopped), resumed_at=0)
    finally:
        trainer.close()
    assert_same(case, results[0], resumed_at=0)


@pytest.mark.slow
def test_without_the_folder_an_update_warns_and_makes_no_checkpoint(
    tmp_path: Path, case: Case, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    request = kept(case, tmp_path)
    folder = interrupted(request, 2)
    monkeypatch.setattr(checkpoints, "LOCK_WAIT_S", 0.1)
    with CheckpointKeeper(request, bool):
        with caplog.at_level(logging.WARNING, "genenv.training"):
            assert_same(case, update(request), resumed_at=0)
        assert {path.name for path in folder.iterdir()} == {"checkpoint-2", "lock"}
    assert "starts at the beginning" in caplog.text and str(folder) in caplog.text
    assert_same(case, update(request), resumed_at=2)


def test_a_waiting_process_continues_from_the_checkpoint_of_the_one_that_ended(
    tmp_path: Path, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = kept(case, tmp_path)
    interrupted(request, 2)
    taken, waits, real = threading.Event(), threading.Event(), time.sleep
    here = threading.current_thread()

    def sleep(seconds: float) -> None:
        if threading.current_thread() is here:
            waits.set()
        real(seconds)

    monkeypatch.setattr(checkpoints.time, "sleep", sleep)
    monkeypatch.setattr(checkpoints, "LOCK_WAIT_S", BOUND_S)

    def hold() -> None:
        with CheckpointKeeper(request, bool):
            taken.set()
            assert waits.wait(BOUND_S)

    thread = threading.Thread(target=hold)
    thread.start()
    assert taken.wait(BOUND_S)
    assert_same(case, update(request), resumed_at=2)
    assert waits.is_set()
    thread.join()


@pytest.mark.parametrize("name", some(SEALED, SEALED[-1:]))
def test_a_checkpoint_that_was_sealed_incomplete_is_ignored_aloud(
    tmp_path: Path, case: Case, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    request = kept(case, tmp_path)
    made = interrupted(request, 3) / "checkpoint-3"
    (made / name).unlink()
    sealed = json.loads((made / "seal.json").read_text())
    del sealed["files"][name]
    (made / "seal.json").write_text(json.dumps(sealed))
    with caplog.at_level(logging.WARNING, "genenv.training"):
        assert_same(case, update(request), resumed_at=0)
    assert f"checkpoint-3 ignored: sealed without {name}" in caplog.text
