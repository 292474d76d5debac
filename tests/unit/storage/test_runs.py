"""Runs: the note of a configuration, stage keys by epoch, attempts.

Invariants: a changed configuration replaces the note and keeps the first start; keys accumulate by
epoch, and noting one twice changes nothing; threads and processes that write one run at once lose
no key and share no attempt number; attempts count from 1, on through another instance, another
process and beside another run; an attempt without an end is `running` until its process is gone or
a later one follows, an ended one is listed once, oldest first; a damaged file gives a warning and
counts as missing, and repeating the run repairs it; runs are listed without their files.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from genenv_core.errors import AlreadyExists, NotFound
from genenv_core.storage import paths
from genenv_core.storage.records import runs
from genenv_core.storage.records.runs import RunLog, StageAttempt, list_runs, unknown_run
from genenv_core.storage.sql.sources import source
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.store.process import identity, machine
from schemas.validate import validate
from tests.unit.builders_runs import open_run, spoil
from tests.unit.storage.store_contract import start_together
from tests.waiting import BOUND_S

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "root")


def attempt(number: int = 1, **changed: Any) -> StageAttempt:
    values: dict[str, Any] = {
        "run_id": "run-a",
        "epoch": 1,
        "stage": "rollout",
        "attempt": number,
        "stage_key": "k" * 64,
        "state": "running",
        "host": "laptop",
        "pid": 4242,
        "started_at": NOW + timedelta(seconds=number),
    }
    return StageAttempt(**values | changed)


def test_the_configuration_is_noted_and_a_change_keeps_the_start(store: LocalStore) -> None:
    log = RunLog(store, "run-a")
    with pytest.raises(NotFound):
        log.info()
    log.open({"epochs": 2}, NOW)
    log.open({"epochs": 2}, NOW + timedelta(hours=1))
    assert (log.info().config, log.info().started_at) == ({"epochs": 2}, NOW)
    RunLog(store, "run-a").open({"epochs": 5}, NOW + timedelta(hours=2))
    assert (log.info().config, log.info().started_at) == ({"epochs": 5}, NOW)


def test_keys_accumulate_by_epoch_and_a_repetition_is_no_news(store: LocalStore) -> None:
    log = RunLog(store, "run-a")
    assert log.keys(1) == {}
    assert log.note_key(1, "rollout", "k1") is True
    assert log.note_key(1, "score", "k2") is True
    assert log.note_key(1, "rollout", "k1") is False
    assert log.note_key(2, "rollout", "k3") is True
    assert RunLog(store, "run-a").keys(1) == {"rollout": "k1", "score": "k2"}
    assert log.note_key(1, "rollout", "k4") is True
    assert log.keys(1) == {"rollout": "k4", "score": "k2"}
    assert log.keys(2) == {"rollout": "k3"}
    assert RunLog(store, "run-b").keys(1) == {}


def test_threads_lose_no_key_and_share_no_attempt(store: LocalStore) -> None:
    log = RunLog(store, "run-a")

    def work(index: int) -> int:
        log.note_key(1, f"stage{index}", "k")
        return log.begin(attempt()).attempt

    with ThreadPoolExecutor(8) as threads:
        numbers = list(threads.map(work, range(24)))
    assert sorted(numbers) == list(range(1, 25))
    assert len(log.keys(1)) == 24


def test_attempts_go_on_from_what_is_on_disk(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RunLog(store, "run-a")
    for number in (1, 2, 10):
        store.create(paths.attempt("run-a", 1, "rollout", number, "start"), b"")
    store.create(paths.attempt("run-a", 1, "grpo_update", 4, "end"), b"")
    store.create("runs/run-a/attempts/notes-from-a-person-start.json", b"")
    assert log.begin(attempt()).attempt == 11
    assert RunLog(store, "run-b").begin(attempt(run_id="run-b")).attempt == 1
    monkeypatch.setattr(runs, "_seen", {})  # what a new process starts with
    assert log.begin(attempt()).attempt == 12
    assert log.begin(attempt(stage="grpo_update")).attempt == 5
    assert log.begin(attempt(epoch=3)).attempt == 1


WRITER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.records.runs import RunLog, StageAttempt

log, name = RunLog(LocalStore(Path(sys.argv[1])), "run-a"), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for turn in range(20):
    begun = log.begin(StageAttempt(run_id="run-a", epoch=1, stage="rollout", stage_key=name,
                              state="running", host=name, pid=1, started_at=datetime.now(UTC)))
    log.note_key(1, f"stage{name}-{turn}", "k")
    log.end(begun.model_copy(update={"state": "computed", "seconds": 1.0}))
    print(begun.attempt)
"""


@pytest.mark.slow
def test_processes_at_once_lose_no_key_and_share_no_attempt(store: LocalStore) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, store.uri, str(index)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(4)
    ]
    start_together(writers)
    numbers = [int(n) for writer in writers for n in writer.communicate(timeout=BOUND_S)[0].split()]
    assert sorted(numbers) == list(range(1, 81))
    log = RunLog(store, "run-a")
    assert len(log.keys(1)) == 80
    assert [(a.state, a.host) for a in log.attempts()].count(("computed", "0")) == 20
    frame = source_of(store, log)
    assert validate("stage_runs", frame).height == 80


def source_of(store: LocalStore, log: RunLog) -> pl.DataFrame:
    log.open({"epochs": 1, "arm": "genenv", "domain": {"name": "desk"}, "seed": 0}, NOW)
    return source(store, "run-a").frames["stage_runs"]


def test_an_attempt_is_listed_once_with_its_end(store: LocalStore) -> None:
    log = RunLog(store, "run-a")
    first = log.begin(attempt(1))
    second = log.begin(attempt(2))
    ended = first.model_copy(
        update={"state": "computed", "seconds": 1.5, "rows": 8, "compute_seconds": 1.0}
    )
    log.end(ended)
    log.begin(attempt(stage="score", state="cached", started_at=NOW))
    listed = RunLog(store, "run-a").attempts()
    assert [(a.stage, a.attempt, a.state) for a in listed] == [
        ("score", 1, "cached"),
        ("rollout", 1, "computed"),
        ("rollout", 2, "running"),
    ]
    assert listed[1:] == [ended, second]
    assert listed[2].seconds is None
    with pytest.raises(AlreadyExists):
        log.end(ended)


def test_an_attempt_whose_process_is_gone_was_interrupted(store: LocalStore) -> None:
    log = RunLog(store, "run-a")
    log.begin(attempt(process=identity(os.getpid()), pid=os.getpid()))
    log.begin(attempt(stage="score", process=f"{machine()} 1", pid=os.getpid()))
    log.begin(attempt(stage="filter", process="elsewhere 1", pid=2**22 + 1))
    states = {a.stage: a.state for a in log.attempts()}
    assert states == {"rollout": "running", "score": "interrupted", "filter": "running"}
    assert source_of(store, log)["state"].to_list().count("interrupted") == 1


def test_an_attempt_that_a_later_one_followed_was_interrupted(store: LocalStore) -> None:
    log = RunLog(store, "run-a")
    for values in ({}, {"epoch": 2}, {"stage": "score"}):
        log.begin(attempt(**values))
    log.begin(attempt(started_at=NOW - timedelta(hours=1)))  # the clock was set back in between
    states = [(a.epoch, a.stage, a.attempt, a.state) for a in log.attempts()]
    assert sorted(states) == [
        (1, "rollout", 1, "interrupted"),
        (1, "rollout", 2, "running"),
        (1, "score", 1, "running"),
        (2, "rollout", 1, "running"),
    ]


def test_damaged_records_are_said_aloud_and_healed_by_a_repetition(
    store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    log = RunLog(store, "run-a")
    config = {"epochs": 1, "arm": "genenv", "domain": {"name": "desk"}, "seed": 0}
    log.open(config, NOW)
    log.note_key(1, "rollout", "k1")
    log.begin(attempt(1))
    ended = log.begin(attempt(stage="score"))
    log.end(ended.model_copy(update={"state": "computed"}))
    whole = store.read(paths.run_config("run-a"))
    broken = [
        paths.run_config("run-a"),
        paths.run_epoch("run-a", 1),
        paths.attempt("run-a", 1, "score", 1, "end"),
    ]
    for path in broken:
        spoil(store, path)
    assert list_runs(store) == []
    with pytest.raises(NotFound, match=r"config\.json is damaged"):
        log.info()
    assert log.keys(1) == {}
    assert [a.stage for a in log.attempts()] == ["rollout"]
    for path in broken:
        assert path in caplog.text
    assert "Traceback" not in caplog.text

    log.open(config, NOW + timedelta(hours=5))
    assert log.info().started_at == NOW + timedelta(seconds=1)  # of the first attempt left
    assert log.info().config == config and store.read(broken[0]) != whole
    assert log.note_key(1, "score", "k2") is True
    assert log.note_key(1, "rollout", "k1") is True
    assert log.keys(1) == {"rollout": "k1", "score": "k2"}
    assert log.begin(attempt(stage="score")).attempt == 2  # the damaged one keeps its number
    assert list_runs(store) == ["run-a"]


def test_runs_are_listed_by_name(store: LocalStore) -> None:
    assert list_runs(store) == []
    for name in ("zeta", "alpha-1.2"):
        RunLog(store, name).open({}, NOW)
        RunLog(store, name).note_key(1, "rollout", "k")
    store.create("runs/stray.txt", b"")
    store.create("runs/never-began/run.log", b"the server did not start\n")
    assert list_runs(store) == ["alpha-1.2", "zeta"]


def test_an_unknown_run_is_refused_with_the_known_ones(store: LocalStore) -> None:
    assert unknown_run(store, "run-a").endswith("known: none")
    open_run(store, "run-a", 1)
    assert unknown_run(store, "run-a") == ""
    assert unknown_run(store, "x") == "there is no run 'x' here; known: run-a"
    assert unknown_run(store, "../runs/run-a") != ""
