"""A stage that two processes want at once, without a Prefect server.

Invariants: of threads and processes that want one key, one computes it and the others reuse it; a
waiter reports that once, writes no attempt meanwhile, and ends when the run is cancelled; a failure
frees the stage for the next one; a killed holder is followed at once and its attempt counts as
interrupted.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.errors import StageError
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from tasks.stage import Stage, StageContext, progress
from tasks.stage.execution import StageOutcome, run_stage
from tasks.stage.progress import Cancelled, Event, listening
from tests.unit.builders_stage import NO_INPUTS
from tests.waiting import BOUND_S, until

REPOSITORY = Path(__file__).parents[3]
STAGE = Stage("score", ("tasks.score",), ())


def configured(root: Path, run_id: str = "x") -> RunConfig:
    return resolve("tiny", fields={"root": str(root), "run_id": run_id})


def states(root: Path, run_id: str = "x") -> list[tuple[int, str]]:
    return [(a.attempt, a.state) for a in RunLog(LocalStore(root), run_id).attempts()]


class Slow:
    """A computation that lasts until `let_go` is set, and counts its starts."""

    def __init__(self) -> None:
        self.begun = 0
        self.at_work = threading.Event()
        self.let_go = threading.Event()

    def __call__(self, context: StageContext[Any]) -> dict[str, Any]:
        self.begun += 1
        self.at_work.set()
        assert self.let_go.wait(BOUND_S)
        return {"by": "me"}


def test_threads_compute_a_stage_once_and_say_that_they_wait(tmp_path: Path) -> None:
    slow = Slow()
    waiting: list[Event] = []

    def seen(event: Event) -> None:
        if event.kind == "waiting":
            waiting.append(event)

    def one(run_id: str) -> StageOutcome:
        return run_stage(STAGE, slow, configured(tmp_path, run_id), 1, NO_INPUTS)

    with listening(seen), ThreadPoolExecutor(3) as threads:
        first = threads.submit(one, "x")
        assert slow.at_work.wait(BOUND_S)
        others = [threads.submit(one, run) for run in ("x", "y")]
        until(lambda: len(waiting) == 2)
        assert states(tmp_path) == [(1, "running")] and states(tmp_path, "y") == []
        slow.let_go.set()
        reused = [future.result(timeout=BOUND_S) for future in others]
        assert first.result(timeout=BOUND_S)[1] is False
    assert slow.begun == 1
    assert [found.reused for found in reused] == [True, True]
    assert {found.ref.digest for found in reused} == {first.result()[0].digest}
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

    with listening(seen), ThreadPoolExecutor(2) as threads:
        first = threads.submit(run_stage, STAGE, slow, configured(tmp_path, "x"), 1, NO_INPUTS)
        assert slow.at_work.wait(BOUND_S)
        other = threads.submit(run_stage, STAGE, slow, configured(tmp_path, "y"), 1, NO_INPUTS)
        assert waits.wait(BOUND_S)
        progress.cancel()
        with pytest.raises(Cancelled):
            other.result(timeout=BOUND_S)
        assert states(tmp_path, "y") == [(1, "interrupted")]
        slow.let_go.set()
        assert first.result(timeout=BOUND_S)[1] is False


def test_a_failure_frees_the_stage(tmp_path: Path) -> None:
    def fail(context: StageContext[Any]) -> dict[str, Any]:
        raise ValueError("no luck")

    slow = Slow()
    slow.let_go.set()
    with listening(lambda event: None):
        with pytest.raises(StageError, match="no luck"):
            run_stage(STAGE, fail, configured(tmp_path), 1, NO_INPUTS)
        assert run_stage(STAGE, slow, configured(tmp_path), 1, NO_INPUTS)[1] is False
    assert states(tmp_path) == [(1, "failed"), (2, "computed")]


PROCESS = """
import sys, time
from pathlib import Path
from genenv_core.config.load import resolve
from tasks.stage import Stage
from tasks.stage.execution import StageOutcome, run_stage
from tests.unit.builders_stage import NO_INPUTS
from tasks.stage.progress import listening

def compute(context):
    print("computing", flush=True)
    time.sleep(float(sys.argv[2]))
    return {"by": "me"}

config = resolve("tiny", fields={"root": sys.argv[1], "run_id": "x"})
with listening(lambda event: event.kind == "waiting" and print("waiting", flush=True)):
    _, reused, _ = run_stage(Stage("score", ("tasks.score",), ()), compute, config, 1, NO_INPUTS)
print("reused" if reused else "computed", flush=True)
"""


def started(root: Path, seconds: float) -> subprocess.Popen[str]:
    """Start a process whose stage simulates work of some seconds."""
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(root), str(seconds)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_processes_compute_a_stage_once_though_one_is_killed(tmp_path: Path) -> None:
    killed = started(tmp_path, 3600)
    assert killed.stdout is not None and killed.stdout.readline() == "computing\n"
    others = [started(tmp_path, 0.1) for _ in range(2)]
    for other in others:
        assert other.stdout is not None and other.stdout.readline() == "waiting\n"
    killed.kill()
    killed.communicate()
    said = sorted(other.communicate(timeout=BOUND_S)[0].split()[-1] for other in others)
    assert said == ["computed", "reused"]
    assert states(tmp_path)[0] == (1, "interrupted")
    assert [state for _, state in states(tmp_path)].count("computed") == 1
    assert LocalStore(tmp_path).list("leases") == []
