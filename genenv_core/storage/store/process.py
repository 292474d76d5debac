"""Names processes, and finds out whether one of this machine has ended."""

from __future__ import annotations

import contextlib
import os
import socket
from functools import cache
from pathlib import Path


@cache
def machine() -> str:
    """Return an id of this machine, its boot and its set of process ids."""
    names = [socket.gethostname()]
    with contextlib.suppress(OSError):  # Linux has both files; elsewhere the host name has to do
        names.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        names.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(names)


def identity(pid: int) -> str:
    """Return where and when a live process began, '' for a pid without a live process.

    The time counts ticks since the boot, so neither a jumping clock nor a reused pid makes two
    processes alike.
    """
    started = _started(pid)
    return f"{machine()} {started}" if started else ""


def has_ended(pid: int, known: str) -> bool:
    """Return whether the process with this identity has certainly ended.

    False for a process of another machine, which this one cannot see.
    """
    return known.startswith(machine() + " ") and identity(pid) != known


def _started(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "" if Path("/proc/self/stat").exists() else _answers(pid)
    # The name in parentheses may hold anything; the state and the start time come after it.
    state, *rest = stat.rpartition(")")[2].split()
    return "" if state in "ZX" else rest[18]


def _answers(pid: int) -> str:
    """Return a mark of a live process, else '', on a system that reports no start."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "alive"
