"""When a command starts the training workers: beside the server, before they are asked for.

Invariants: a run that has something to train here starts them, every other one does not, and a
cancelled one, whose end would wait for them, does not either; and the command itself does not load
torch for that, which would keep the workers waiting.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flows.cli.runs.run import _start_workers
from genenv_core.config.load import resolve
from genenv_core.config.stages import LAST
from genenv_core.config.until import Until
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.opening import open_store
from genenv_core.training.processes.workers import WORKERS, WorkerTrainer
from tasks.policies import trainer as services
from tasks.stage.progress import Cancelled, cancel, listening
from tests.mutations import mutation


def started(
    root: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str, until: Until | None = None
) -> list[tuple[int, str]]:
    """Return how many workers a run starts, and for which device."""
    calls: list[tuple[int, str]] = []

    class Trainer:
        def start(self, workers: int, device: str) -> None:
            calls.append((workers, device))

    monkeypatch.setattr(services, "trainer", Trainer)
    fields: dict[str, Any] = {"root": str(root), "run_id": "r"}
    config = resolve("tiny", overrides=overrides, fields=fields)
    _start_workers(config, open_store(config.root), until)
    return calls


@mutation(
    "a worker waits for an update that comes later", "flows/cli/runs/run.py",
    "start(1 if training.on_gpus else at_once,", "start(2,",
)  # fmt: skip
def test_workers_start_for_a_run_that_trains_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert started(tmp_path, monkeypatch, "execution.updates_at_once=2") == [(2, "cpu")]
    assert started(tmp_path, monkeypatch, "execution.updates_at_once=1") == [(1, "cpu")]
    assert started(tmp_path, monkeypatch, "training.device=cuda") == [(1, "cuda")]
    assert not started(tmp_path, monkeypatch, "placement.grpo_update=gpu")
    assert not started(tmp_path, monkeypatch, "training.processes=2")
    log = RunLog(open_store(str(tmp_path)), "r")
    log.note_key(1, LAST, "1" * 64)
    assert started(tmp_path, monkeypatch)
    log.note_key(2, LAST, "2" * 64)
    assert not started(tmp_path, monkeypatch)  # finished: tiny has two epochs


@mutation(
    "a run that trains nothing starts a worker", "flows/cli/runs/run.py",
    "planned = ARMS[config.arm].trains_agent and reached", "planned = reached",
)  # fmt: skip
@mutation(
    "a run that ends before its first update starts a worker", "flows/cli/runs/run.py",
    "planned = ARMS[config.arm].trains_agent and reached",
    "planned = ARMS[config.arm].trains_agent",
)  # fmt: skip
def test_no_worker_starts_where_no_update_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not started(tmp_path, monkeypatch, "arm=base")
    assert started(tmp_path, monkeypatch, "arm=random")
    before = Until(stage="filter", epoch=1)
    assert not started(tmp_path, monkeypatch, until=before)
    assert started(tmp_path, monkeypatch, until=Until(stage="grpo_update", epoch=1))
    assert started(tmp_path, monkeypatch, until=Until(stage="filter", epoch=2))


def test_start_starts_every_worker() -> None:
    trainer = WorkerTrainer()
    try:
        trainer.start(1)
        assert len(trainer._idle) == 1
        trainer.start()
        assert [len(worker.processes) for worker in trainer._idle] == [1] * WORKERS
    finally:
        trainer.close()


@mutation(
    "a cancelled run starts new workers", "tasks/policies/trainer.py", "        check()\n", ""
)
def test_a_cancelled_run_starts_no_workers() -> None:
    services.close()  # an earlier test's workers would be told to stop, and stay so
    with services.ended():
        with listening(lambda event: None):
            cancel()
            services.request_stop()  # after SIGTERM, with no workers at work: makes none either
            with pytest.raises(Cancelled):
                services.trainer()
        with listening(lambda event: None):  # the next run of this process
            assert services.trainer() is services.trainer()


def test_the_parent_of_workers_loads_no_torch() -> None:
    code = (
        "import sys, tasks.policies.trainer as t, genenv_core.training.warm_start.request;"
        "t.trainer(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
