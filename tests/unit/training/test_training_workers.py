"""Training workers that die.

Invariants: a worker that died while it had nothing to do is made anew, with a line in the log, and
the update runs; one that dies during an update ends that update with the sentence about memory, no
other one, and the next update runs.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from genenv_core.errors import TrainingError
from genenv_core.training.processes.workers import WorkerTrainer
from tests.mutations import mutation
from tests.waiting import BOUND_S, until

WORKERS = "genenv_core/training/processes/workers.py"


def pid_of(_: object) -> int:
    """Return the process that computes this; what a worker is asked for, in place of an update."""
    return os.getpid()


def wait_for(path: Path) -> int:
    """Return the own process once there is a file."""
    path.with_suffix(".begun").touch()
    until(path.exists)
    return os.getpid()


@pytest.fixture
def trainer() -> Any:
    made = WorkerTrainer()
    yield made
    made.close()


@mutation(
    "a worker that died while idle ends an update", WORKERS, "worker.begun.value or fresh", "True"
)
def test_a_worker_that_died_while_idle_is_made_anew(
    trainer: WorkerTrainer, caplog: pytest.LogCaptureFixture
) -> None:
    first = trainer._call(pid_of, None, "grpo")
    assert trainer._call(pid_of, None, "grpo") == first
    os.kill(first, signal.SIGKILL)
    with caplog.at_level(logging.WARNING, "genenv.training"):
        # At once, or after the pool has seen it.
        assert trainer._call(pid_of, None, "grpo") != first
    assert "that had nothing to do has ended: grpo gets a new one" in caplog.text
    (second,) = trainer._idle
    os.kill(trainer._call(pid_of, None, "grpo"), signal.SIGKILL)
    until(lambda: second.pool._broken)
    assert trainer._call(pid_of, None, "grpo") != first


@mutation(
    "an update whose process was killed is computed again", WORKERS,
    "worker.begun.value or fresh", "fresh",
)  # fmt: skip
def test_a_worker_that_dies_in_an_update_takes_no_other_with_it(
    trainer: WorkerTrainer, tmp_path: Path
) -> None:
    trainer.start()  # those that are new at their first call are given up at once
    found: dict[str, Any] = {}

    def call(what: str) -> None:
        try:
            found[what] = trainer._call(wait_for, tmp_path / what, what)
        except TrainingError as error:
            found[what] = error

    threads = {what: threading.Thread(target=call, args=(what,)) for what in ("grpo", "rwr")}
    for what, thread in threads.items():
        thread.start()
        until((tmp_path / f"{what}.begun").exists)
    grpo, rwr = (worker.processes[0].pid for worker in trainer._busy)
    assert grpo and rwr
    os.kill(grpo, signal.SIGKILL)
    (tmp_path / "grpo").touch()
    threads["grpo"].join(BOUND_S)
    (tmp_path / "rwr").touch()
    threads["rwr"].join(BOUND_S)
    sentence = "the training process of grpo was killed, most likely for want of memory: lower grpo"
    assert str(found["grpo"]).startswith(sentence) and found["rwr"] == rwr
    assert trainer._call(pid_of, None, "grpo") == rwr
