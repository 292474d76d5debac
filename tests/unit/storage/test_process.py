"""Processes: an identity belongs to one process; only its own machine knows when it ended."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from genenv_core.storage.store import process
from genenv_core.storage.store.process import has_ended, identity, machine


def test_this_process_lives_and_keeps_its_identity() -> None:
    assert identity(os.getpid()) == identity(os.getpid()) != ""
    assert not has_ended(os.getpid(), identity(os.getpid()))


def test_an_ended_process_is_known_to_be_gone_also_before_it_is_waited_for() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    known = identity(child.pid)
    assert known and not has_ended(child.pid, known)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert has_ended(child.pid, known)  # a zombie
    child.communicate()
    assert identity(child.pid) == ""
    assert has_ended(child.pid, known)


def test_a_process_with_a_reused_pid_has_ended() -> None:
    earlier = f"{machine()} 1"
    assert has_ended(os.getpid(), earlier)


def test_nothing_is_known_of_another_machine() -> None:
    assert not has_ended(2**22 + 1, "elsewhere 0000 pid:[1] 5")
    assert not has_ended(2**22 + 1, "")


def test_without_proc_a_signal_shows_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_started", process._answers)
    assert not has_ended(os.getpid(), identity(os.getpid()))
    assert has_ended(2**22 + 1, f"{machine()} alive")
