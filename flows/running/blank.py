"""An empty Prefect database, kept in the environment, that a new root starts with.

Prefect makes a new SQLite database by all of its migrations, which is two thirds of the time that
a server takes to start on a new root. `make install` has Prefect do that once; a new root then
starts with a copy, which holds no rows. Without the file, or with another version of Prefect, the
server migrates as ever.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from flows.running.environment import QUIET
from genenv_core.storage.files import create, move_over, temporary

NAME = "prefect.db"
URL_VARIABLE = "PREFECT_API_DATABASE_CONNECTION_URL"
"""Prefect's own; with it the database is elsewhere."""


def blank(prefix: Path | None = None) -> Path:
    """Return where the environment keeps the empty database of the installed Prefect."""
    folder = Path(sys.prefix) if prefix is None else prefix
    return folder / "share" / "genenv" / f"prefect-{version('prefect')}.db"


def make(target: Path) -> None:
    """Have Prefect make an empty database at `target`; one that is there is replaced."""
    with tempfile.TemporaryDirectory() as home:
        made = Path(home) / NAME
        environment = {**os.environ, **QUIET, "PREFECT_HOME": home}
        environment[URL_VARIABLE] = f"sqlite+aiosqlite:///{made}"
        command = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y"]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        target.parent.mkdir(parents=True, exist_ok=True)
        move_over(temporary(target.parent, made.read_bytes()), target)


def lay(home: Path, source: Path | None = None) -> None:
    """Begin the database in Prefect's home as a copy of the empty one; one that is there stays."""
    source = blank() if source is None else source
    if os.environ.get(URL_VARIABLE) or not source.is_file():
        return
    # Where this fails, the server makes its own database, or names what is wrong.
    with contextlib.suppress(OSError):
        home.mkdir(parents=True, exist_ok=True)
        create(home / NAME, source.read_bytes())  # never over one that is there


if __name__ == "__main__":
    make(blank())
