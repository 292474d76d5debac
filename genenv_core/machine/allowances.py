"""Reads before work what this process may use: memory, processes, open files, address space.

Under a limit that is too low, a run hangs, ends without a word, or fails in a library whose error
blames something else. Limits come from the control group (versions 1 and 2, and each group above)
and from the process (`ulimit`).
"""

from __future__ import annotations

import os
import resource
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from genenv_core.errors import MachineError
from genenv_core.machine.shortage import AGAIN

GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")

NEEDED_FILES = 128
NEEDED_TASKS = 150
NEEDED_MEMORY = 1.9e9
NEEDED_SPACE = 6e9
"""Files, threads, and bytes of memory and of address space that a run needs, with room to spare. A
run of the preset tiny on two cores had 36 open files and 3.7 GB of address space in one process,
and 77 threads. Its processes together held 1.7 GB of memory; with 1.57 GB the kernel killed it."""

_HELD = (("anon", "shmem"), ("total_rss", "total_shmem"))
"""Lines of `memory.stat`, of both versions, that count what the kernel cannot take back."""

_UNLIMITED = 2**60
"""Version 1 writes a number near 2^63 for no limit."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """One limit: how much it leaves, how much a run needs (bytes with `in_bytes`), who sets it."""

    what: str
    left: float
    needed: float
    set_by: str
    in_bytes: bool = False

    @property
    def enough(self) -> bool:
        """Return whether a run fits."""
        return self.left >= self.needed

    def line(self) -> str:
        """Return the numbers, and a remedy where the limit leaves too little."""
        has, needs = (self._text(number) for number in (self.left, self.needed))
        said = f"{self.what}: {has} left by {self.set_by}, a run needs {needs}"
        return said if self.enough else f"{said}; raise the limit {AGAIN}"

    def _text(self, number: float) -> str:
        return f"{number / 1e9:.1f} GB" if self.in_bytes else f"{number:.0f}"


def check_allowances() -> None:
    """Raise MachineError where a limit leaves less than the smallest run needs."""
    if lacking := [one.line() for one in allowances() if not one.enough]:
        raise MachineError("; ".join(lacking))


def allowances() -> list[Allowance]:
    """Return the limits of this process and its control groups."""
    return [*_of_groups(), *_of_process()]


def _of_process() -> Generator[Allowance]:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY:
        yield Allowance("open files", files, NEEDED_FILES, "ulimit -n")
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if space != resource.RLIM_INFINITY:
        yield Allowance("address space", space, NEEDED_SPACE, "ulimit -v", in_bytes=True)
    tasks, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if tasks != resource.RLIM_INFINITY and os.geteuid() != 0:  # root has no such limit
        yield Allowance("processes", tasks - _tasks_of_user(), NEEDED_TASKS, "ulimit -u")


def _tasks_of_user() -> int:
    """Return how many threads this user has; the kernel counts each of them as a process."""
    import psutil

    user, count = os.geteuid(), 0
    for process in psutil.process_iter(["uids", "num_threads"]):
        uids = process.info["uids"]
        if uids is not None and uids.real == user:
            count += process.info["num_threads"] or 0
    return count


def _of_groups() -> Generator[Allowance]:
    """Yield the tightest limit of each kind among this process's control groups and those above."""
    memory = [
        (path, most - _held(path.with_name("memory.stat")))
        for path, most in _limits("memory", "memory.max", "memory.limit_in_bytes")
    ]
    if memory:
        path, left = min(memory, key=lambda one: one[1])
        yield Allowance("memory", left, NEEDED_MEMORY, str(path), in_bytes=True)
    tasks = [
        (path, most - (_number(path.with_name("pids.current")) or 0))
        for path, most in _limits("pids", "pids.max", "pids.max")
    ]
    if tasks:
        path, left = min(tasks, key=lambda one: one[1])
        yield Allowance("processes", left, NEEDED_TASKS, str(path))


def _limits(controller: str, name: str, name_1: str) -> Generator[tuple[Path, int]]:
    """Yield file and number of each limit of a controller, from the own group upwards."""
    try:
        lines = OWN_GROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:  # another system than Linux
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            top, file = GROUPS, name
        elif controller in controllers.split(","):
            top, file = GROUPS / controllers, name_1
        else:
            continue
        # In a container the path may be the host's; then the top folder is the container's group.
        place = top / group.strip("/")
        for folder in (place, *place.parents):
            number = _number(folder / file)
            if number is not None and number < _UNLIMITED:
                yield folder / file, number
            if folder == top:
                break


def _held(path: Path) -> int:
    """Return the bytes that the processes of a group hold, without what the kernel caches."""
    try:
        lines = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
    except (OSError, ValueError):
        return 0
    found = {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit()}
    return max(sum(found.get(name, 0) for name in names) for names in _HELD)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such file, or the word "max"
        return None
