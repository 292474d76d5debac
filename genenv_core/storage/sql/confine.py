"""Takes rights for good from the process that runs people's SQL.

Three layers, each of which holds by itself, as far as the system offers it: limits (address space,
processor time, no file may grow), capabilities (without them root too obeys the 0444 of the tables'
files) and Landlock (the process opens the given files for reading and no others; no TCP).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct
import sys
from collections.abc import Sequence

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_READ_FILE = 1 << 2
# linux/landlock.h: how many file system rights each version of Landlock knows, from version 1.
_FS_RIGHTS = (13, 14, 15, 15, 16)
_TCP = 0b11  # bind, connect; from version 4
_SCOPES = 0b11  # abstract sockets and signals of other processes; from version 6
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_CAPABILITIES_VERSION_3 = 0x20080522
_CAP_DAC_READ_SEARCH = 1 << 2


def confine(files: Sequence[str], *, memory_bytes: int, cpu_s: int | None) -> bool:
    """Give up everything but reading `files`; returns whether Landlock enforces that.

    Threads that exist already keep their rights, so call this before DuckDB starts its own. From
    here on the process may allocate `memory_bytes`, and use `cpu_s` seconds of processor time.
    """
    _limit(memory_bytes, cpu_s)
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    # The process ends with its parent, after which nobody would read the answer.
    libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _drop_capabilities(libc)
    return _landlock(libc, files)


def landlock_version() -> int:
    """Return the kernel's version of Landlock, 0 where there is none."""
    if sys.platform != "linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))))


def _limit(memory_bytes: int, cpu_s: int | None) -> None:
    used = 0
    with contextlib.suppress(OSError), open("/proc/self/statm", "rb") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    wanted = [
        (resource.RLIMIT_AS, used + memory_bytes),
        (resource.RLIMIT_CPU, resource.RLIM_INFINITY if cpu_s is None else cpu_s),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ]
    for which, value in wanted:
        hard = resource.getrlimit(which)[1]
        if hard != resource.RLIM_INFINITY:
            value = hard if value == resource.RLIM_INFINITY else min(value, hard)
        with contextlib.suppress(OSError, ValueError):  # macOS has no limit on address space
            resource.setrlimit(which, (value, value))


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Keep of root's powers only the one to read; for others this changes nothing."""
    header = struct.pack("=Ii", _CAPABILITIES_VERSION_3, 0)
    permitted = _CAP_DAC_READ_SEARCH if os.geteuid() == 0 else 0
    data = struct.pack("=6I", permitted, permitted, 0, 0, 0, 0)
    if libc.capset(header, data):
        libc.capset(header, struct.pack("=6I", *(0,) * 6))


def _landlock(libc: ctypes.CDLL, files: Sequence[str]) -> bool:
    version = landlock_version()
    if not version:
        return False
    rights = (1 << _FS_RIGHTS[min(version, len(_FS_RIGHTS)) - 1]) - 1
    parts = [rights] + [_TCP] * (version >= 4) + [_SCOPES] * (version >= 6)
    attributes = struct.pack(f"={len(parts)}Q", *parts)
    ruleset = libc.syscall(
        _CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0)
    )
    if ruleset < 0:
        return False
    try:
        for path in files:
            with contextlib.suppress(FileNotFoundError):  # DuckDB says which file is gone
                handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
                rule = struct.pack("=Qi", _READ_FILE, handle)
                libc.syscall(_ADD_RULE, ruleset, 1, rule, ctypes.c_uint32(0))
                os.close(handle)
        return libc.syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint32(0)) == 0
    finally:
        os.close(ruleset)
