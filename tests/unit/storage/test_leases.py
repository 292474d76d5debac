"""Leases: one computes, the others wait and reuse.

Invariants: of many threads or processes that want one key at once, one computes and all get its
output; a lease is gone after use, also after a failure; a killed holder of this machine is followed
at once, a silent one of another machine after the time to live by the waiter's own clock, a beating
one never; a waiter learns once for whom it waits and ends on request; losing a lease is a warning;
a damaged one is taken over.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from genenv_core.errors import AlreadyExists, StorageError
from genenv_core.storage import paths
from genenv_core.storage.store import leases as module
from genenv_core.storage.store.leases import Lease, Leases, doing
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.store.process import identity
from tests.mutations import mutation
from tests.waiting import BOUND_S, until

LEASES = "genenv_core/storage/store/leases.py"

STAGE, KEY = "rollout", "a" * 64
PATH = paths.lease(STAGE, KEY)
RESULT = paths.manifest(STAGE, KEY)
ELSEWHERE = Lease(host="elsewhere", pid=7, process="elsewhere 5", token="t")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "root")


def result_of(store: LocalStore) -> Callable[[], bytes | None]:
    return lambda: store.read(RESULT) if store.size(RESULT) is not None else None


def compute(
    leases: Leases,
    store: LocalStore,
    result: bytes,
    work: Callable[[], object] = lambda: None,
    waiting: Callable[[str], None] = lambda holder: None,
) -> bytes:
    """Return the stage's output; the holder of the lease computes it."""
    with leases.hold(STAGE, KEY, result_of(store), waiting=waiting) as theirs:
        if theirs is not None:
            return theirs
        work()
        store.create(RESULT, result)  # raises if another one computes as well
        return result


@mutation(
    "a lease is not released", LEASES,
    "            self._release(path, token)\n", "            pass\n",
)  # fmt: skip
def test_a_lease_names_its_holder_and_is_gone_afterwards(store: LocalStore) -> None:
    leases = Leases(store)
    with leases.hold(STAGE, KEY, lambda: None) as theirs:
        assert theirs is None
        held = Lease.from_bytes(store.read(PATH))
        assert (held.pid, held.process) == (os.getpid(), identity(os.getpid()))
    assert store.list("leases") == []
    with pytest.raises(ZeroDivisionError), leases.hold(STAGE, KEY, lambda: None):
        raise ZeroDivisionError
    assert store.list("leases") == []


def test_what_is_finished_is_seen_under_the_lease(store: LocalStore) -> None:
    store.create(RESULT, b"theirs")
    assert compute(Leases(store), store, b"mine") == b"theirs"


def test_threads_of_one_process_compute_once_and_do_not_deadlock(store: LocalStore) -> None:
    leases, named = Leases(store), list[str]()
    with ThreadPoolExecutor(6) as threads:
        futures = [
            threads.submit(
                compute, leases, store, b"%d" % index,
                lambda: until(lambda: len(named) == 5), named.append,
            )
            for index in range(6)
        ]  # fmt: skip
        results = {future.result(timeout=BOUND_S) for future in futures}
    assert results == {store.read(RESULT)}
    assert store.list("leases") == []


WORKER = """
import os, sys, time
from pathlib import Path
from genenv_core.storage.store.leases import Leases
from genenv_core.storage.store.local import LocalStore

store, stage, key, result = LocalStore(Path(sys.argv[1])), *sys.argv[2:5]
leases, folder = Leases(store, ttl_s=float(sys.argv[6])), Path(sys.argv[5])
waiting = lambda holder: (folder / f"waiting {os.getpid()}").touch()
print("ready", flush=True)
sys.stdin.readline()
found = lambda: store.read(result) if store.size(result) is not None else None
with leases.hold(stage, key, found, waiting=waiting) as theirs:
    if theirs is None:
        print("computing", flush=True)
        while not (folder / "go on").exists():
            time.sleep(0.01)
        store.create(result, b"done")
    else:
        print("reused", flush=True)
"""


def worker(store: LocalStore, folder: Path, ttl_s: float = 60) -> subprocess.Popen[str]:
    """Return a process that waits for a line, takes the lease and computes until `go_on`."""
    started = subprocess.Popen(
        [sys.executable, "-c", WORKER, store.uri, STAGE, KEY, RESULT, str(folder), str(ttl_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None and started.stdout.readline() == "ready\n"
    return started


def go(started: subprocess.Popen[str]) -> None:
    assert started.stdin is not None
    started.stdin.write("go\n")
    started.stdin.flush()


def holding(started: subprocess.Popen[str]) -> None:
    go(started)
    assert started.stdout is not None and started.stdout.readline() == "computing\n"


def go_on(folder: Path) -> None:
    """Let the holder finish."""
    (folder / "go on").touch()


@pytest.mark.slow
def test_processes_compute_once(store: LocalStore, tmp_path: Path) -> None:
    workers = [worker(store, tmp_path) for _ in range(4)]
    for started in workers:
        go(started)
    until(lambda: len(list(tmp_path.glob("waiting *"))) == 3)
    go_on(tmp_path)
    said = sorted(started.communicate(timeout=BOUND_S)[0].strip() for started in workers)
    assert said == ["computing", "reused", "reused", "reused"]
    assert [started.returncode for started in workers] == [0] * 4
    assert store.list("leases") == []


def test_a_killed_holder_of_this_machine_is_followed_at_once(
    store: LocalStore, tmp_path: Path
) -> None:
    holder = worker(store, tmp_path)
    holding(holder)
    holder.kill()
    until(lambda: psutil.Process(holder.pid).status() == psutil.STATUS_ZOMBIE)
    named: list[str] = []
    assert compute(Leases(store), store, b"mine", waiting=named.append) == b"mine"
    assert named == []  # not waited for, though nobody has collected it
    holder.communicate()


class Clock:
    """Replaces the time of the thread that creates it; other threads really sleep."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.owner, self.real = 0.0, threading.current_thread(), time.sleep
        monkeypatch.setattr(module, "time", self)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        if threading.current_thread() is self.owner:
            self.now += seconds
        else:
            self.real(seconds)


def test_a_silent_holder_elsewhere_is_followed_after_the_time_to_live(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    store.create(PATH, ELSEWHERE.to_bytes())
    assert compute(Leases(store), store, b"mine") == b"mine"
    assert module.TTL_S < clock.now <= module.TTL_S + 2 * module.POLL_S


@pytest.mark.slow
def test_a_stopped_holder_is_followed_and_may_still_finish(
    store: LocalStore, tmp_path: Path
) -> None:
    holder = worker(store, tmp_path, ttl_s=0.5)
    holding(holder)
    holder.send_signal(19)  # SIGSTOP
    try:
        with Leases(store, ttl_s=0.5).hold(STAGE, KEY, result_of(store)) as theirs:
            assert theirs is None
            holder.send_signal(18)  # SIGCONT: it goes on, and leaves a lease that is not its own
            go_on(tmp_path)
            assert holder.wait(timeout=BOUND_S) == 0
            assert Lease.from_bytes(store.read(PATH)).pid == os.getpid()
            with pytest.raises(AlreadyExists):
                store.create(RESULT, b"mine")
    finally:
        holder.kill()
        holder.communicate()
    assert store.list("leases") == []


@mutation(
    "a lease is taken from a holder that is at work", LEASES,
    "silent = time.monotonic() - since > self._ttl_s", "silent = True",
)  # fmt: skip
def test_a_beating_holder_is_waited_for(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = worker(store, tmp_path, ttl_s=0.5)
    holding(holder)
    clock, seen = Clock(monkeypatch), [0]

    def beats() -> int:
        return Lease.from_bytes(store.read(PATH)).beats

    def check() -> None:
        """Wait for a beat, then let most of a time to live pass."""
        until(lambda: beats() > seen[-1])
        seen.append(beats())
        clock.now += 0.9 * module.TTL_S
        if len(seen) == 6:
            go_on(tmp_path)
            until(lambda: store.size(RESULT) is not None)

    with Leases(store).hold(STAGE, KEY, result_of(store), check=check) as theirs:
        assert theirs == b"done"
    assert clock.now > 4 * module.TTL_S
    assert holder.communicate(timeout=BOUND_S) and holder.returncode == 0


@pytest.mark.slow
def test_a_jumping_wall_clock_changes_nothing(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumps = iter(range(0, 10**9, 86400))
    monkeypatch.setattr(time, "time", lambda: float(next(jumps)))
    test_a_beating_holder_is_waited_for(store, tmp_path, monkeypatch)


def test_a_result_that_appears_ends_the_wait_though_the_lease_stays(store: LocalStore) -> None:
    store.create(PATH, ELSEWHERE.to_bytes())
    appears = lambda holder: store.create(RESULT, b"theirs")  # noqa: E731
    assert compute(Leases(store), store, b"mine", waiting=appears) == b"theirs"
    assert store.read(PATH) == ELSEWHERE.to_bytes()


class Stop(BaseException):
    pass


@pytest.mark.slow
def test_a_waiter_is_notified_once_and_can_be_stopped(store: LocalStore) -> None:
    store.create(PATH, ELSEWHERE.to_bytes())
    named: list[str] = []
    looks: list[int] = []

    def check() -> None:
        looks.append(1)
        if len(looks) == 4:
            raise Stop

    with (
        pytest.raises(Stop),
        Leases(store).hold(STAGE, KEY, lambda: None, waiting=named.append, check=check),
    ):
        raise AssertionError("nobody released it")
    assert named == ["elsewhere pid 7"]
    assert store.read(PATH) == ELSEWHERE.to_bytes()


def test_a_lost_lease_is_a_warning_and_stays_the_other_ones(
    store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    leases = Leases(store, ttl_s=0.2)
    with leases.hold(STAGE, KEY, lambda: None):
        store.replace(PATH, ELSEWHERE.to_bytes())
        until(lambda: "was taken over" in caplog.text)
        assert f"lease={PATH} was taken over; this stage may be computed twice" in caplog.text
    assert store.read(PATH) == ELSEWHERE.to_bytes()


def test_a_damaged_lease_is_taken_over(store: LocalStore, caplog: pytest.LogCaptureFixture) -> None:
    store.create(PATH, b"{")
    assert compute(Leases(store), store, b"mine") == b"mine"
    assert f"lease={PATH} is damaged and taken over" in caplog.text


def test_one_thread_beats_for_all_and_ends(store: LocalStore) -> None:
    leases = Leases(store, ttl_s=0.2)

    def beats(stage: str) -> int:
        return Lease.from_bytes(store.read(paths.lease(stage, KEY))).beats

    others = set(threading.enumerate())

    def hearts() -> int:
        return sum(thread.name == "leases" for thread in set(threading.enumerate()) - others)

    with leases.hold("score", KEY, lambda: None), leases.hold("filter", KEY, lambda: None):
        until(lambda: beats("score") > 2 and beats("filter") > 2)
        assert hearts() == 1
    until(lambda: hearts() == 0)
    with leases.hold("score", KEY, lambda: None):
        until(lambda: beats("score") > 0)


@mutation(
    "a beat says nothing of how far the stage is", LEASES,
    'doing = self._doing.get(path, "")', 'doing = ""',
)  # fmt: skip
def test_a_beat_says_how_far_the_stage_is(store: LocalStore) -> None:
    leases = Leases(store)

    def beat() -> None:
        (held,) = leases._held.values()
        leases._renew(*held)

    assert doing(store, STAGE, KEY) == ""
    with leases.hold(STAGE, KEY, result_of(store)):
        leases.tell(STAGE, KEY, "3 of 8 groups")
        beat()
        assert doing(store, STAGE, KEY) == "3 of 8 groups"
    assert doing(store, STAGE, KEY) == ""
    with leases.hold(STAGE, KEY, result_of(store)):  # again: what was said before is gone
        beat()
        assert doing(store, STAGE, KEY) == ""


def test_a_store_that_fails_at_a_beat_or_at_the_release_hides_nothing(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leases = Leases(store, ttl_s=0.2)

    def refuse(*_: object) -> bool:
        raise StorageError("the disk is full")

    with pytest.raises(ZeroDivisionError), leases.hold(STAGE, KEY, lambda: None):
        with monkeypatch.context() as patch:
            patch.setattr(store, "swap", refuse)
            until(lambda: "missed a beat: the disk is full" in caplog.text)
        before = Lease.from_bytes(store.read(PATH)).beats
        until(lambda: Lease.from_bytes(store.read(PATH)).beats > before)
        monkeypatch.setattr(store, "delete", refuse)
        raise ZeroDivisionError
    assert "stays behind: the disk is full" in caplog.text
