"""Training workers that die.

Invariants: a worker that died while it had nothing to do is made anew, with a line in the log, and
the update runs; one that dies during an update ends that update with the sentence about memory, no
other one, and the next update runs; variables of launchers and of training libraries reach no
worker, and change no bit of an update; what a worker's arithmetic is chosen by does reach it.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from genenv_core.canonical import file_sha256
from genenv_core.errors import OutOfMemory, TrainingError
from genenv_core.training.processes import workers
from genenv_core.training.processes.workers import WorkerTrainer, _Worker  # pyright: ignore[reportPrivateUsage]
from genenv_core.training.updates.table import run_update
from tests.mutations import mutation
from tests.unit.training.builders_training import grpo_of, grpo_rows, load, tiny_checkpoint
from tests.unit.training.calls import pid_of, ready, seen, starved, wait_for
from tests.waiting import BOUND_S, until

WORKERS = "genenv_core/training/processes/workers.py"
LOWER = "grpo.micro_batch_rows"


@pytest.fixture
def trainer() -> Any:
    made = WorkerTrainer()
    yield made
    made.close()


LAUNCHED = {
    "ACCELERATE_MIXED_PRECISION": "bf16",
    "WORLD_SIZE": "2",
    "RANK": "0",
    "LOCAL_RANK": "0",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29511",
    "TORCHELASTIC_RUN_ID": "7",
    "SLURM_NTASKS": "2",
    "OMPI_COMM_WORLD_SIZE": "2",
    "PMI_SIZE": "2",
}
"""What `accelerate launch`, torchrun, a training operator, SLURM and MPI set."""


@mutation("a worker keeps the environment of its parent", WORKERS, "    os.environ.clear()\n", "")
@pytest.mark.slow
def test_a_worker_has_the_environment_that_genenv_makes(
    trainer: WorkerTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (LAUNCHED | {"ATEN_CPU_CAPABILITY": "avx2", "HF_HOME": "/hf"}).items():
        monkeypatch.setenv(name, value)
    variables = trainer._call(seen, None, "grpo", LOWER)
    assert set(variables) & set(LAUNCHED) == set()
    assert (variables["ATEN_CPU_CAPABILITY"], variables["HF_HOME"]) == ("avx2", "/hf")
    assert variables["PATH"] == os.environ["PATH"]


@pytest.mark.slow
def test_an_update_ignores_the_variables_of_launchers(
    trainer: WorkerTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With them, the update computed in bfloat16, or waited for processes that nobody starts."""
    policy = tiny_checkpoint(tmp_path / "policy", seed=1)
    rows = grpo_rows(2, 4, sampler=load(policy))
    request = grpo_of(tmp_path, "grpo", rows, policy, learning_rate=1e-3)
    alone = run_update(request.model_copy(update={"output": tmp_path / "alone"}))
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    result = trainer.update(request)
    assert result.metrics == alone.metrics
    first, second = (one.checkpoint / "model.safetensors" for one in (alone, result))
    assert file_sha256(first) == file_sha256(second)


@mutation("a worker for a GPU sees all of them", WORKERS, 'if device == "cuda":', "if False:")
@mutation(
    "an update takes a worker of another device", WORKERS, "if worker.device == device", "if True"
)
@pytest.mark.slow
def test_a_worker_for_a_gpu_stays_and_sees_one(
    trainer: WorkerTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    first = trainer._call(pid_of, None, "rwr", LOWER)
    second = trainer._call(pid_of, None, "grpo", LOWER, "cuda")
    assert trainer._call(pid_of, None, "grpo", LOWER, "cuda") == second != first
    assert trainer._call(seen, None, "grpo", LOWER, "cuda")["CUDA_VISIBLE_DEVICES"] == "GPU-a"
    assert trainer._call(seen, None, "rwr", LOWER)["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert trainer._call(pid_of, None, "rwr", LOWER) == first


@mutation(
    "a worker without memory is asked again", WORKERS,
    "                    lives = False\n                    raise\n", "                    raise\n",
)  # fmt: skip
@pytest.mark.slow
def test_a_worker_that_ran_out_of_memory_ends(trainer: WorkerTrainer) -> None:
    first = trainer._call(pid_of, None, "grpo", LOWER, "cuda")
    with pytest.raises(OutOfMemory) as caught:
        trainer._call(starved, 4, "grpo", LOWER, "cuda")
    assert caught.value.rows == 4
    assert trainer._call(pid_of, None, "grpo", LOWER, "cuda") != first


@mutation(
    "what an update logs is lost", WORKERS, "            lines.told(_lines(request))\n",
    "            pass\n",
)  # fmt: skip
@pytest.mark.slow
def test_what_an_update_logs_is_logged_here(
    trainer: WorkerTrainer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = tiny_checkpoint(tmp_path / "policy", seed=1)
    request = grpo_of(tmp_path, "grpo", grpo_rows(2, 4, sampler=load(policy)), policy)
    with caplog.at_level(logging.INFO, "genenv.training"):
        trainer.update(request)
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith("update=grpo device=cpu processes=1 micro_batch_rows=")
    assert list(request.output.parent.glob(".*")) == []


@mutation(
    "a worker that died while idle ends an update", WORKERS, "worker.begun.value or fresh", "True"
)
@pytest.mark.slow
def test_a_worker_that_died_while_idle_is_made_anew(
    trainer: WorkerTrainer, caplog: pytest.LogCaptureFixture
) -> None:
    first = trainer._call(pid_of, None, "grpo", LOWER)
    assert trainer._call(pid_of, None, "grpo", LOWER) == first
    os.kill(first, signal.SIGKILL)
    with caplog.at_level(logging.WARNING, "genenv.training"):
        # At once, or after the pool has seen it.
        assert trainer._call(pid_of, None, "grpo", LOWER) != first
    assert "that had nothing to do has ended: grpo gets a new one" in caplog.text
    (second,) = trainer._idle
    os.kill(trainer._call(pid_of, None, "grpo", LOWER), signal.SIGKILL)
    until(lambda: second.pool._broken)
    assert trainer._call(pid_of, None, "grpo", LOWER) != first


@mutation(
    "an update whose process was killed is computed again", WORKERS,
    "worker.begun.value or fresh", "fresh",
)  # fmt: skip
@pytest.mark.slow
def test_a_worker_that_dies_in_an_update_takes_no_other_with_it(
    trainer: WorkerTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_ready", ready)
    trainer.start()  # those that are new at their first call are given up at once
    found: dict[str, Any] = {}

    def call(what: str) -> None:
        try:
            found[what] = trainer._call(wait_for, tmp_path / what, what, LOWER)
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
    assert trainer._call(pid_of, None, "grpo", LOWER) == rwr


class Slow:
    """A pool of no process whose shutdown ends once a second thread is in it, or waits for it."""

    def __init__(self) -> None:
        self._processes: dict[int, Any] = {}
        self.inside = threading.Semaphore(1)
        self.asked = threading.Event()
        self.met = threading.Event()

    def shutdown(self, wait: bool, *, cancel_futures: bool) -> None:
        if not self.inside.acquire(blocking=False):
            self.met.set()
            return
        self.asked.set()
        self.met.wait(0.2)
        self.inside.release()


@mutation(
    "two threads shut down one worker at once",
    WORKERS,
    "        with self.turn:\n",
    "        if self.turn:\n",
)
def test_two_threads_that_end_one_worker_take_turns():
    """Python's executor closes its pipes without a lock: the second close raised EBADF."""
    pool = Slow()
    worker = _Worker("cpu", cast(Any, pool), cast(Any, None), None)
    first = threading.Thread(target=worker.end)
    first.start()
    assert pool.asked.wait(BOUND_S)
    worker.end()
    first.join(BOUND_S)
    assert not pool.met.is_set()
