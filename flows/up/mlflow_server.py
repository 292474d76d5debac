"""MLflow on a root: makes or upgrades its database, and then becomes `mlflow server`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

UPGRADE_VARIABLE = "GENENV_MLFLOW_UPGRADE"
"""Set to upgrade an older database, which `genenv up --upgrade` has copied."""


def main(root: str, host: str, port: str) -> None:
    """Become the server of the SQLite file under the root."""
    from tasks.tracking.database import create_database

    folder = Path(root) / "mlflow"
    create_database(Path(root))
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    if os.environ.get(UPGRADE_VARIABLE):
        subprocess.run([sys.executable, "-m", "mlflow", "db", "upgrade", uri], check=True)
    arguments = [
        sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri,
        "--artifacts-destination", str(folder / "artifacts"), "--host", host, "--port", port,
        "--workers", "1",
    ]  # fmt: skip
    os.execv(sys.executable, arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
