"""Finds why a command failed where Prefect raised: a stage's error, a dead server, a full disk.

Prefect reports each state to its server. When that fails, its error replaces that of the run, and
does not mention a full disk.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Protocol

from genenv_core.errors import GenenvError, MachineError, StageError, described
from genenv_core.machine.shortage import AGAIN, DISK, chain, shortage
from schemas.enums import StageState
from tasks.stage.progress import Event, listening

LEAST = 16_000_000
"""With fewer free bytes, a failing database means a full disk: SQLite needs a few MB for its
journal, and a server for its log."""

_PREFECT = {"prefect", "httpx", "httpcore"}
"""Packages whose errors are Prefect's: its client uses httpx."""


class PrefectServer(Protocol):
    """A Prefect server of this command: its address, the folder of its database, how it ended."""

    home: Path
    url: str
    death: str


def ending(status: int) -> str:
    """Return how a process ended, from its exit status; a negative one is a signal."""
    if status >= 0:
        return f"it ended with exit status {status}"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else "unknown"
    memory = "; the kernel does so when memory runs out" if -status == signal.SIGKILL else ""
    return f"it was killed by signal {-status} ({name}{memory})"


def full(folder: Path) -> str:
    """Return in words that the disk of a folder is full, '' if it is not or that is unknown."""
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(folder).free
        if free < LEAST:
            return f"{DISK} ({free / 1e6:.1f} MB are free in {folder})"
    return ""


@contextlib.contextmanager
def explained(server: PrefectServer | None) -> Generator[None]:
    """Raise GenenvError for an error of Prefect in the block, where its cause is known.

    The error of a stage wins over that of its report. Without a server of its own, the command uses
    the one of PREFECT_API_URL.
    """
    failed: dict[tuple[str, int], Event] = {}

    def note(event: Event) -> None:
        if event.kind == "failed" and event.state == StageState.FAILED:
            failed[event.stage, event.epoch] = event
        elif event.kind in ("started", "finished"):
            failed.pop((event.stage, event.epoch), None)

    try:
        with listening(note):
            yield
    except GenenvError:
        raise
    except Exception as error:
        cause = cause_of(error, server, list(failed.values()))
        if cause is None:
            raise
        raise cause from cause.__cause__ or error


def cause_of(
    error: Exception, server: PrefectServer | None, failed: list[Event]
) -> GenenvError | None:
    """Return what ended a command; None for the error itself, and for one that is not Prefect's.

    Where the server explains it, the result omits Prefect's words: `genenv --debug` shows them.
    """
    raised = list(chain(error))
    if not any(type(one).__module__.partition(".")[0] in _PREFECT for one in raised):
        return None
    for one in raised:
        if isinstance(one, GenenvError):
            return one
    for event in failed:
        return StageError(f"stage {event.stage} of epoch {event.epoch}: {event.message}")
    text = described(error, 200)
    if what := shortage(error):
        return MachineError(f"{what} ({text})")
    if server and (what := server.death):
        return GenenvError(f"{what}: the same command continues the run")
    if server and (what := full(server.home)):
        return MachineError(f"the Prefect server of this run failed: {what}")
    if any(type(one).__name__ == "ConnectError" for one in raised):
        url = server.url if server else os.environ.get("PREFECT_API_URL", "")
        return GenenvError(f"the Prefect API at {url} does not answer: start it {AGAIN} ({text})")
    return None
