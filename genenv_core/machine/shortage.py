"""Finds out from the error of any library what the machine ran out of.

A full disk, or too few processes, open files or bytes, surfaces as an error of the library that met
it first: an OSError, a line of SQL, "can't start new thread", a loader that cannot map a file. The
work of that moment is not at fault.
"""

from __future__ import annotations

import errno
from collections.abc import Generator

from genenv_core.errors import GenenvError, MachineError, described

AGAIN = "and run the same command again"

DISK = f"the disk is full: free some space {AGAIN}"
QUOTA = f"the disk quota is used up: free some space {AGAIN}"
MEMORY = (
    "the memory that this process may use is used up (the machine's, a limit of its container or "
    f"`ulimit -v`): end other work, raise the limit, or give a smaller setting, {AGAIN}"
)
PROCESSES = (
    "no further process or thread may be started (`ulimit -u`, or pids.max of the container): "
    f"raise the limit or end other work, {AGAIN}"
)
FILES = f"no further file may be opened (`ulimit -n`): raise the limit, {AGAIN}"

BY_NUMBER = {
    errno.ENOSPC: DISK,
    errno.EDQUOT: QUOTA,
    errno.ENOMEM: MEMORY,
    errno.EMFILE: FILES,
    errno.ENFILE: FILES,
}
_BY_WORDS = {
    "No space left on device": DISK,
    "database or disk is full": DISK,  # SQLite
    "disk quota exceeded": QUOTA,
    "can't start new thread": PROCESSES,
    "Resource temporarily unavailable": PROCESSES,
    "failed to spawn thread": PROCESSES,  # Rust
    "unable to start a thread": PROCESSES,
    "Too many open files": FILES,
    "failed to map segment": MEMORY,  # the loader of shared libraries
    "Cannot allocate memory": MEMORY,
    "can't allocate memory": MEMORY,  # torch
    "Unable to allocate": MEMORY,  # numpy
    "std::bad_alloc": MEMORY,
}


def chain(error: BaseException) -> Generator[BaseException]:
    """Yield an error and its causes, each once, the error itself first."""
    seen: set[int] = set()
    ahead: list[BaseException | None] = [error]
    while ahead:
        one = ahead.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        inner = getattr(one, "orig", None)  # SQLAlchemy's name for the database's own error
        before = one.__cause__ if one.__suppress_context__ else one.__cause__ or one.__context__
        ahead += [inner if isinstance(inner, BaseException) else None, before]
        if isinstance(one, BaseExceptionGroup):
            ahead += one.exceptions  # pyright: ignore[reportUnknownMemberType]


def shortage(error: BaseException) -> str | None:
    """Return what the machine ran out of, with a remedy; None for an error of another kind."""
    for one in chain(error):
        if isinstance(one, GenenvError):  # says what is wrong in its own words
            continue
        if isinstance(one, OSError) and one.errno in BY_NUMBER:
            return BY_NUMBER[one.errno]
        if isinstance(one, MemoryError):
            return MEMORY
        text = str(one).lower()
        for words, what in _BY_WORDS.items():
            if words.lower() in text:
                return what
    return None


def blame_machine(error: BaseException, doing: str) -> None:
    """Raise MachineError where `error` is a shortage of the machine: `doing` is not at fault."""
    if what := shortage(error):
        raise MachineError(f"{doing}: {what} ({described(error, 200)})") from error
