"""What a worker process is asked for in place of an update. It loads no torch for these."""

from __future__ import annotations

import os
from pathlib import Path

from genenv_core.errors import OutOfMemory
from tests.waiting import until


def ready() -> None:
    """Begin with nothing loaded, in place of what every update needs."""


def pid_of(_: object) -> int:
    """Return the process that computes this."""
    return os.getpid()


def wait_for(path: Path) -> int:
    """Return the own process once there is a file."""
    path.with_suffix(".begun").touch()
    until(path.exists)
    return os.getpid()


def seen(_: object) -> dict[str, str]:
    """Return a worker's variables."""
    return dict(os.environ)


def starved(rows: int) -> int:
    """Run out of memory with so many rows."""
    raise OutOfMemory("no memory", rows)
