"""MLflow's SQLite database under a root, which starts as a copy of an empty one.

MLflow's migrations take most of the time of opening a new root's tracking. The empty database has
MLflow's tables and no experiment: MLflow adds the default one when it opens the copy, with the
place of artifacts and the time of this root.
"""

# MLflow's client has few types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from genenv_core.storage.blank import blank, lay
from genenv_core.storage.files import create
from genenv_core.storage.store.local import LocalStore


def database_of(root: Path) -> str:
    """Return the URI of the SQLite file under the root."""
    return f"sqlite:///{root / 'mlflow' / 'mlflow.db'}"


def create_database(root: Path, source: Path | None = None) -> None:
    """Make MLflow's SQLite file, whole or not at all: MLflow cannot use an incomplete one.

    It starts as a copy of `source`, by default the empty database of the environment.
    """
    from mlflow import MlflowClient

    path = root / "mlflow" / "mlflow.db"
    if path.exists():
        return
    path.parent.mkdir(exist_ok=True)
    scratch = LocalStore(root).scratch()
    made = scratch / path.name
    try:
        lay(source or blank("mlflow"), made)
        MlflowClient(tracking_uri=f"sqlite:///{made}").search_experiments()
        # Another process may have been quicker, and use it by now. The folder may be another disk.
        with contextlib.suppress(FileExistsError):
            create(path, made.read_bytes())
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def migrate(path: Path) -> None:
    """Let MLflow make a database without experiments, in silence."""
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_LOGGING_LEVEL": "WARNING"}
    command = [sys.executable, "-m", "mlflow", "db", "upgrade", f"sqlite:///{path}"]
    subprocess.run(command, env={**os.environ, **quiet}, check=True, stdout=subprocess.DEVNULL)
