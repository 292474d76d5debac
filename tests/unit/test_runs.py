"""Runs: the note of a configuration, stage keys by epoch, attempts.

Invariants: a changed configuration replaces the note and keeps the first start; keys accumulate by
epoch, and noting one twice is no news; attempts count from 1 and go on in another instance, in
another process and beside another run; an attempt that never ended stays `running`, an ended one
is listed once, oldest first; runs are listed without their files.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from genenv_core.errors import AlreadyExists, NotFound
from genenv_core.storage import runs
from genenv_core.storage.local import LocalStore
from genenv_core.storage.runs import Attempt, RunLog, list_runs

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "root")


def attempt(number: int = 1, **changed: Any) -> Attempt:
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
    return Attempt(**values | changed)


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
        return log.next_attempt(1, "rollout")

    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(work, range(24)))
    assert sorted(numbers) == list(range(1, 25))
    assert len(log.keys(1)) == 24


def test_attempts_count_from_one_by_epoch_and_stage(store: LocalStore) -> None:
    log = RunLog(store, "run-a")
    assert [log.next_attempt(1, "rollout") for _ in range(3)] == [1, 2, 3]
    assert log.next_attempt(2, "rollout") == 1
    assert log.next_attempt(1, "grpo_update") == 1
    assert RunLog(store, "run-a").next_attempt(1, "rollout") == 4
    assert RunLog(store, "run-b").next_attempt(1, "rollout") == 1


def test_attempts_go_on_from_what_is_on_disk(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RunLog(store, "run-a")
    for number in (1, 2, 10):
        log.write(attempt(number), f"{number:04d}.{99 + number}")
    log.write(attempt(4, stage="grpo_update"), "0004.5")
    monkeypatch.setattr(runs, "_attempts", {})  # what a new process starts with
    assert RunLog(store, "run-a").next_attempt(1, "rollout") == 11
    assert RunLog(store, "run-a").next_attempt(1, "grpo_update") == 5
    assert RunLog(store, "run-a").next_attempt(3, "rollout") == 1


def test_attempts_go_on_in_another_process(store: LocalStore) -> None:
    log = RunLog(store, "run-a")
    log.write(attempt(log.next_attempt(1, "rollout")), "0001.7")
    code = (
        "import sys; from pathlib import Path;"
        "from genenv_core.storage.local import LocalStore;"
        "from genenv_core.storage.runs import RunLog;"
        "print(RunLog(LocalStore(Path(sys.argv[1])), 'run-a').next_attempt(1, 'rollout'))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code, store.uri],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    assert output.strip() == "2"


def test_an_attempt_is_listed_once_with_its_end_and_unended_ones_stay_running(
    store: LocalStore,
) -> None:
    log = RunLog(store, "run-a")
    log.write(attempt(1), "0001.7")
    log.write(attempt(2), "0002.8")
    ended = attempt(1, state="computed", seconds=1.5, rows=8, compute_seconds=1.0)
    log.write(ended, "0001.7")
    log.write(attempt(1, stage="score", state="cached", started_at=NOW), "0001.9")
    listed = RunLog(store, "run-a").attempts()
    assert [(a.stage, a.attempt, a.state) for a in listed] == [
        ("score", 1, "cached"),
        ("rollout", 1, "computed"),
        ("rollout", 2, "running"),
    ]
    assert listed[1] == ended
    assert listed[2].seconds is None


def test_an_event_is_written_once(store: LocalStore) -> None:
    log = RunLog(store, "run-a")
    log.write(attempt(1), "0001.7")
    with pytest.raises(AlreadyExists):
        log.write(attempt(1), "0001.7")


def test_runs_are_listed_by_name(store: LocalStore) -> None:
    assert list_runs(store) == []
    for name in ("zeta", "alpha-1.2"):
        RunLog(store, name).open({}, NOW)
        RunLog(store, name).note_key(1, "rollout", "k")
    store.create("runs/stray.txt", b"")
    assert list_runs(store) == ["alpha-1.2", "zeta"]


def test_a_folder_with_a_log_and_no_configuration_is_no_run(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("runs/never-began/run.log", b"the server did not start\n")
    RunLog(store, "real").open({"epochs": 1}, NOW)
    assert list_runs(store) == ["real"]
