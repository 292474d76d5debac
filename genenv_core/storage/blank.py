"""Keeps empty databases of other tools in the environment, from which new roots start.

Prefect and MLflow make a new SQLite database by all of their migrations, which takes seconds.
`make install` lets each of them do that once, and a new root starts with copies. Without the file,
or with another version of the tool, the tool migrates as usual.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from genenv_core.storage.files import create, move_over, temporary


def blank(tool: str, prefix: Path | None = None) -> Path:
    """Return the environment's file for the empty database of a tool's installed version."""
    folder = Path(sys.prefix) if prefix is None else prefix
    return folder / "share" / "genenv" / f"{tool}-{version(tool)}.db"


def make(target: Path, migrate: Callable[[Path], None]) -> None:
    """Store the database that `migrate` makes in an empty folder; replace an older one."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.db"
        migrate(made)
        target.parent.mkdir(parents=True, exist_ok=True)
        move_over(temporary(target.parent, made.read_bytes()), target)


def lay(source: Path, target: Path) -> None:
    """Copy the empty database, if that exists, to a place without a database."""
    # Where this fails, the tool makes its own database, or names what is wrong.
    with contextlib.suppress(OSError):
        data = source.read_bytes()
        target.parent.mkdir(parents=True, exist_ok=True)
        create(target, data)  # never over an existing one
