"""Makes the empty Prefect database of a new root; as a command, makes all empty databases.

Prefect's migrations are two thirds of the time that a server takes to start on a new root.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from flows.running.environment import QUIET
from genenv_core.storage import blank
from tasks.tracking import database

NAME = "prefect.db"
URL_VARIABLE = "PREFECT_API_DATABASE_CONNECTION_URL"
"""Prefect's own variable for a database elsewhere."""


def migrate(path: Path) -> None:
    """Let Prefect make a database without rows; `path` is alone in its folder."""
    environment = {**os.environ, **QUIET, "PREFECT_HOME": str(path.parent)}
    environment[URL_VARIABLE] = f"sqlite+aiosqlite:///{path}"
    command = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y"]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)


def lay(home: Path, source: Path | None = None) -> None:
    """Copy the empty database into Prefect's home, unless that has a database."""
    if not os.environ.get(URL_VARIABLE):
        blank.lay(source or blank.blank("prefect"), home / NAME)


if __name__ == "__main__":
    blank.make(blank.blank("prefect"), migrate)
    blank.make(blank.blank("mlflow"), database.migrate)
