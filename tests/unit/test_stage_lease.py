"""A stage that two want at once, without a Prefect server.

Invariants: threads and processes that want one key compute it once, and the others reuse it; who
waits says so once, writes no attempt meanwhile, and ends when the run is cancelled; a failure frees
the stage for the next one; a holder that was killed is followed at once and its attempt reads as
interrupted.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.errors import StageError
from genenv_core.storage.local import LocalStore
from genenv_core.storage.manifest import ArtifactRef
from genenv_core.storage.runs import RunLog
from tasks import progress
from tasks.progress import Cancelled, Event, listening
from tasks.stage import Stage, StageContext
from tasks.stage.execution import run_stage

REPOSITORY = Path(__file__).parents[2]
STAGE = Stage("score", ("tasks.score",), ())


def configured(root: Path, run_id: str = "x") -> RunConfig:
    return resolve("tiny", fields={"root": str(root), "run_id": run_id})


def states(root: Path, run_id: str = "x") -> list[tuple[int, str]]:
    return [(a.attempt, a.state) for a in RunLog(LocalStore(root), run_id).attempts()]


class Slow:
    """A computation that takes until it is let go, and counts how often it was begun."""

    def __init__(self) -> None:
        self.begun = 0
        self.at_work = threading.Event()
        self.let_go = threading.Event()

    def __call__(self, context: StageContext) -> dict[str, Any]:
        self.begun += 1
        self.at_work.set()
        assert self.let_go.wait(30)
        return {"by": "me"}


def test_threads_compute_a_stage_once_and_say_that_they_wait(tmp_path: Path) -> None:
    slow = Slow()
    waiting: list[Event] = []

    def seen(event: Event) -> None:
        if event.kind == "waiting":
            waiting.append(event)

    def one(run_id: str) -> tuple[ArtifactRef, bool]:
        return run_stage(STAGE, slow, configured(tmp_path, run_id), 1, {})

    with listening(seen), ThreadPoolExecutor(3) as pool:
        first = pool.submit(one, "x")
        assert slow.at_work.wait(30)
        others = [pool.submit(one, run) for run in ("x", "y")]
        while len(waiting) < 2:
            time.sleep(0.01)
        assert states(tmp_path) == [(1, "running")] and states(tmp_path, "y") == []
        slow.let_go.set()
        reused = [future.result(timeout=30) for future in others]
        assert first.result(timeout=30)[1] is False
    assert slow.begun == 1
    assert [hit for _, hit in reused] == [True, True]
    assert {ref.digest for ref, _ in reused} == {first.result()[0].digest}
    assert len(waiting) == 2
    assert "which computes it" in waiting[0].message and " pid " in waiting[0].message
    assert [state for _, state in states(tmp_path)].count("computed") == 1
    assert states(tmp_path, "y") == [(1, "cached")]
    assert LocalStore(tmp_path).list("leases") == []


def test_a_cancelled_run_stops_to_wait(tmp_path: Path) -> None:
    slow = Slow()
    waits = threading.Event()

    def seen(event: Event) -> None:
        if event.kind == "waiting":
            waits.set()

    with listening(seen), ThreadPoolExecutor(2) as pool:
        first = pool.submit(run_stage, STAGE, slow, configured(tmp_path, "x"), 1, {})
        assert slow.at_work.wait(30)
        other = pool.submit(run_stage, STAGE, slow, configured(tmp_path, "y"), 1, {})
        assert waits.wait(30)
        progress.cancel()
        with pytest.raises(Cancelled):
            other.result(timeout=30)
        assert states(tmp_path, "y") == [(1, "interrupted")]
        slow.let_go.set()
        assert first.result(timeout=30)[1] is False


def test_a_failure_frees_the_stage(tmp_path: Path) -> None:
    def fail(context: StageContext) -> dict[str, Any]:
        raise ValueError("no luck")

    slow = Slow()
    slow.let_go.set()
    with listening(lambda event: None):
        with pytest.raises(StageError, match="no luck"):
            run_stage(STAGE, fail, configured(tmp_path), 1, {})
        assert run_stage(STAGE, slow, configured(tmp_path), 1, {})[1] is False
    assert states(tmp_path) == [(1, "failed"), (2, "computed")]


PROCESS = """
import sys, time
from pathlib import Path
from genenv_core.config.load import resolve
from tasks.stage import Stage
from tasks.stage.execution import run_stage

def compute(context):
    print("computing", flush=True)
    time.sleep(float(sys.argv[2]))
    return {"by": "me"}

config = resolve("tiny", fields={"root": sys.argv[1], "run_id": "x"})
_, reused = run_stage(Stage("score", ("tasks.score",), ()), compute, config, 1, {})
print("reused" if reused else "computed", flush=True)
"""


def started(root: Path, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(root), str(seconds)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_processes_compute_a_stage_once_though_one_is_killed(tmp_path: Path) -> None:
    killed = started(tmp_path, 60)
    assert killed.stdout is not None and killed.stdout.readline() == "computing\n"
    others = [started(tmp_path, 1) for _ in range(2)]
    time.sleep(1)
    killed.kill()
    killed.communicate()
    said = sorted(other.communicate(timeout=60)[0].split()[-1] for other in others)
    assert said == ["computed", "reused"]
    assert states(tmp_path)[0] == (1, "interrupted")
    assert [state for _, state in states(tmp_path)].count("computed") == 1
    assert LocalStore(tmp_path).list("leases") == []
