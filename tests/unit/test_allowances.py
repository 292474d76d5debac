"""What this process may use, read from files and limits as Linux has them.

Invariants: the tightest limit of the groups that the process is in counts, of both versions of
control groups; processes and memory are counted against what is there already, without caches; no
limit is no line; `doctor` and the start of a run name what is left, what is needed and what sets
it. A command says that the last one was killed where a stage has no end and its process is gone.
"""

from __future__ import annotations

import os
import resource
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from flows.cli.machines.doctor import checks
from flows.cli.runs.run import execute
from flows.cli.session import last_end
from genenv_core.errors import MachineError
from genenv_core.machine import allowances
from genenv_core.machine.allowances import check_allowances
from genenv_core.storage.records import runs
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from schemas.enums import StageState
from tests.mutations import mutation
from tests.pipeline.builders import tiny
from tests.unit.storage.test_runs import attempt

ALLOWANCES = "genenv_core/machine/allowances.py"
GIB = 2**30


def machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, files: dict[str, str]
) -> list[tuple[str, float]]:
    """Return the limits of a process in these control groups, with no limits of its own."""
    for name, text in files.items():
        (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(text, encoding="ascii")
    (tmp_path / "own").write_text(own, encoding="ascii")
    monkeypatch.setattr(allowances, "GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(allowances, "OWN_GROUPS", tmp_path / "own")
    limited(monkeypatch)
    return [(one.what, one.left) for one in allowances.allowances()]


def limited(monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    """Set limits of the process by name, the others to none."""
    numbers = {getattr(resource, name): value for name, value in limits.items()}
    infinite = resource.RLIM_INFINITY
    monkeypatch.setattr(
        resource, "getrlimit", lambda number: (numbers.get(number, infinite), infinite)
    )


@mutation("limits of the groups above are not seen", ALLOWANCES,
          "for folder in (place, *place.parents):", "for folder in (place,):")  # fmt: skip
@mutation("processes that are there already do not count", ALLOWANCES,
          '(_number(path.with_name("pids.current")) or 0)', "0")  # fmt: skip
def test_groups_of_version_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "memory.max": f"{9 * GIB}\n",
        "a/memory.max": f"{2 * GIB}\n",
        "a/b/memory.max": "max\n",
        "a/b/pids.max": "200\n",
        "a/b/pids.current": "70\n",
    }
    found = machine(tmp_path, monkeypatch, "0::/a/b\n", files)
    assert found == [("memory", 2 * GIB), ("processes", 130)]


@mutation("groups of version 1 are not read", ALLOWANCES,
          "top, file = GROUPS / controllers, name_1", "continue")  # fmt: skip
def test_groups_of_version_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "memory/a/memory.limit_in_bytes": f"{GIB}\n",
        "memory/memory.limit_in_bytes": "9223372036854771712\n",  # none
        "pids/pids.max": "max\n",
    }
    own = "8:pids:/\n4:memory:/a\n9:name=systemd:/\n0::/\n"
    assert machine(tmp_path, monkeypatch, own, files) == [("memory", GIB)]


def test_a_container_that_sees_the_path_of_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"memory/memory.limit_in_bytes": f"{GIB}"}
    own = "4:memory:/kubepods/pod7\n"
    assert machine(tmp_path, monkeypatch, own, files) == [("memory", GIB)]


@mutation("memory that others hold is left too", ALLOWANCES,
          "most - _held(path.with_name(\"memory.stat\"))", "most")  # fmt: skip
@pytest.mark.parametrize(
    ("folder", "limit", "own", "stat"),
    [
        ("a", "memory.max", "0::/a\n", f"anon {GIB}\nfile {GIB}\nshmem 4096\nodd\n"),
        (
            "memory/a", "memory.limit_in_bytes", "4:memory:/a\n",
            f"cache {GIB}\nrss 5\ntotal_rss {GIB}\ntotal_shmem 4096\n",
        ),
    ],
    ids=["version 2", "version 1"],
)  # fmt: skip
def test_memory_that_is_held_already_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, limit: str, own: str, stat: str
) -> None:
    files = {f"{folder}/{limit}": f"{3 * GIB}\n", f"{folder}/memory.stat": stat}
    left = 2 * GIB - 4096
    assert machine(tmp_path, monkeypatch, own, files) == [("memory", left)]
    check_allowances()  # 2.1 GB
    files[f"{folder}/{limit}"] = f"{1_600_000_000 + GIB}\n"  # a run was killed at 1.57 GB
    machine(tmp_path, monkeypatch, own, files)
    with pytest.raises(MachineError, match=r"memory: 1.6 GB left by .*, a run needs 1.9 GB"):
        check_allowances()


def test_no_limit_is_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine(tmp_path, monkeypatch, "0::/\n", {}) == []
    monkeypatch.setattr(allowances, "OWN_GROUPS", tmp_path / "missing")
    check_allowances()


@mutation("a run begins under any limit", "flows/preparing.py",
          "    check_allowances()\n", "")  # fmt: skip
def test_doctor_and_a_run_name_the_number_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(tmp_path, monkeypatch, "0::/\n", {})
    limited(monkeypatch, RLIMIT_NOFILE=22, RLIMIT_AS=3_500_000_000)

    def begun(_: object) -> None:
        raise AssertionError("the run has begun")

    monkeypatch.setattr("flows.preparing.open_once", begun)
    with pytest.raises(MachineError) as said:
        execute(tiny(tmp_path / "root", run_id="x"), as_json=True)
    assert "open files: 22 left by ulimit -n, a run needs 128; raise the limit" in str(said.value)
    assert "address space: 3.5 GB left by ulimit -v, a run needs 6.0 GB" in str(said.value)
    assert not (tmp_path / "root").exists()
    doctor = {check.name: check for check in checks(str(tmp_path / "root"))}["limits"]
    assert (doctor.ok, doctor.detail) == (False, str(said.value))
    limited(monkeypatch, RLIMIT_NOFILE=1024)
    doctor = {check.name: check for check in checks(str(tmp_path / "root"))}["limits"]
    assert (doctor.ok, doctor.detail) == (
        True,
        "open files: 1024 left by ulimit -n, a run needs 128",
    )


@mutation("root has a limit of processes", ALLOWANCES, " and os.geteuid() != 0", "")  # fmt: skip
def test_processes_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(tmp_path, monkeypatch, "0::/\n", {})
    limited(monkeypatch, RLIMIT_NPROC=100)
    monkeypatch.setattr(allowances, "_tasks_of_user", lambda: 30)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert allowances.allowances() == []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MachineError, match="processes: 70 left by ulimit -u, a run needs 150"):
        check_allowances()


@mutation("a stage that failed counts as one that was killed", "flows/cli/session.py",
          "        and one.seconds is None\n", "")  # fmt: skip
def test_the_next_command_says_that_the_last_one_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, run = LocalStore(tmp_path), "run-a"
    log = RunLog(store, run)
    assert last_end(store, run) == ""
    at = datetime(2026, 11, 1, tzinfo=UTC)
    for epoch, stage, gone, ends in [
        (1, "score", "a", False),  # of an earlier command
        (2, "rollout", "b", True),
        (2, "grpo_update", "b", False),
    ]:
        at += timedelta(minutes=1)
        begun = attempt(epoch=epoch, stage=stage, process=gone, started_at=at, seconds=None)
        begun = log.begin(begun.model_copy(update={"state": StageState.RUNNING}))
        if ends:
            log.end(begun.model_copy(update={"state": StageState.INTERRUPTED, "seconds": 1.0}))
    monkeypatch.setattr(runs, "has_ended", lambda pid, process: False)
    assert last_end(store, run) == ""  # it is at work
    monkeypatch.setattr(runs, "has_ended", lambda pid, process: True)
    assert last_end(store, run).startswith(
        "the last command of this run was killed in grpo_update of epoch 2: signal 9"
    )
    log.end(begun.model_copy(update={"state": StageState.FAILED, "seconds": 2.0}))
    assert last_end(store, run) == ""
