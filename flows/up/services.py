"""The services of `genenv up`: commands, environments, ports, and whether each is ready."""

# psutil's addresses are untyped tuples.
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

import psutil

import flows
from flows.deploy.deployments import HEARTBEAT_S, WORK_POOL
from flows.running.environment import MLFLOW_VARIABLE, QUIET, ROOT_VARIABLE
from genenv_core.addresses import VIEW_VARIABLE
from genenv_core.errors import ConfigError

HOST = "127.0.0.1"
WORKER = "genenv-up"

DATABASE_VARIABLE = "GENENV_DATABASE_URL"
"""Holds a password, so only the Prefect server gets it, under Prefect's name for the variable."""


@dataclass(frozen=True)
class Settings:
    """The settings of `genenv up`; `root` is absolute, `database_url` None means SQLite."""

    root: Path
    port: int = 4200
    mlflow_port: int = 5000
    view_port: int = 4300
    database_url: str | None = None
    work_pool: str = WORK_POOL
    limit: int = 2

    @property
    def url(self) -> str:
        """Return where people open Prefect."""
        return f"http://{HOST}:{self.port}"

    @property
    def mlflow_url(self) -> str:
        """Return where people open MLflow."""
        return f"http://{HOST}:{self.mlflow_port}"

    @property
    def view_url(self) -> str:
        """Return where people look at runs, tasks and traces."""
        return f"http://{HOST}:{self.view_port}"

    @property
    def prefect_home(self) -> Path:
        """Return Prefect's home, which `genenv run` uses as well: one history of runs."""
        return self.root / "prefect"

    @property
    def mlflow_database(self) -> Path:
        """Return MLflow's SQLite file, which runs log to by default."""
        return self.root / "mlflow" / "mlflow.db"

    @property
    def logs(self) -> Path:
        """Return the folder with the logs of the processes."""
        return self.root / "up" / "logs"


def environment(settings: Settings) -> dict[str, str]:
    """Return the variables of all services: this environment, no telemetry, this code, this API."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PREFECT_") and name != DATABASE_VARIABLE
    }
    here = str(Path(next(iter(flows.__path__))).parent)
    paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **kept,
        **QUIET,
        "PYTHONPATH": os.pathsep.join(paths),
        "PREFECT_HOME": str(settings.prefect_home),
        "PREFECT_API_URL": f"{settings.url}/api",
    }


def server_environment(settings: Settings) -> dict[str, str]:
    """Return the Prefect server's environment; a password in the database's URL stays in it."""
    values = {
        **environment(settings),
        "PREFECT_UI_API_URL": f"{settings.url}/api",
        "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
    }
    if settings.database_url:
        values["PREFECT_API_DATABASE_CONNECTION_URL"] = settings.database_url
    return values


def server_command(settings: Settings) -> list[str]:
    """Return the command of the Prefect server."""
    app = "flows.running.server_program:create_app"
    where = ["--host", HOST, "--port", str(settings.port)]
    return [sys.executable, "-m", "uvicorn", "--factory", app, *where, "--log-level", "warning"]


def mlflow_environment(settings: Settings) -> dict[str, str]:
    """Return MLflow's environment: without its job runners it takes a quarter of the memory."""
    return {**environment(settings), "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def mlflow_command(settings: Settings) -> list[str]:
    """Return the command of MLflow, which makes its database first."""
    return [sys.executable, "-m", "flows.up.mlflow_server", str(settings.root),
            HOST, str(settings.mlflow_port)]  # fmt: skip


def view_command(settings: Settings) -> list[str]:
    """Return the command of the page over the root."""
    return [sys.executable, "-m", "flows.view.serve", str(settings.root),
            HOST, str(settings.view_port)]  # fmt: skip


def worker_environment(settings: Settings) -> dict[str, str]:
    """Return the worker's environment, which its flow runs inherit."""
    return {
        **environment(settings),
        "PREFECT_WORKER_QUERY_SECONDS": "2",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_S),
        "PREFECT_LOGGING_EXTRA_LOGGERS": "genenv",
        "PREFECT_LOGGING_LEVEL": "INFO",
        ROOT_VARIABLE: str(settings.root),
        MLFLOW_VARIABLE: settings.mlflow_url,
        VIEW_VARIABLE: settings.view_url,
        "MLFLOW_TRACKING_URI": settings.mlflow_url,
    }


def worker_command(settings: Settings) -> list[str]:
    """Return the command of the worker."""
    return [
        sys.executable, "-m", "prefect", "worker", "start", "--pool", settings.work_pool,
        "--type", "process", "--name", WORKER, "--install-policy", "never",
    ]  # fmt: skip


def job_variables() -> dict[str, str]:
    """Return how the worker starts a run: in this directory, with the code in it."""
    return {
        "working_dir": os.getcwd(),
        "command": shlex.join([sys.executable, "-m", "prefect.engine"]),
    }


def require_free(port: int, what: str, option: str) -> None:
    """Raise ConfigError, naming who listens, unless `what` can listen on this port."""
    with socket.socket() as probe:
        # A port that only waits for its last connections to time out is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            return
        except PermissionError:
            raise ConfigError(f"port {port} needs root: choose another with {option}") from None
        except OSError:
            pass
    raise ConfigError(
        f"port {port}, where {what} would listen, is taken by {listener(port)}: stop that, or "
        f"choose another port with {option}"
    )


def listener(port: int) -> str:
    """Return pid and command of the process that listens, as far as this user may see them."""
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                if connection.pid is None:
                    break
                command = " ".join(psutil.Process(connection.pid).cmdline())
                return f"pid {connection.pid} ({shorten(command, 120, placeholder=' ...')})"
    return "another process (of another user, or of another container)"


def healthy(address: str) -> bool:
    """Return whether the server at this address says that it is healthy."""
    return _get(f"{address}/health") is not None


def worker_answers(settings: Settings) -> bool:
    """Return whether the worker has reported to the server."""
    path = f"api/work_pools/{settings.work_pool}/workers/filter"
    found = _get(f"{settings.url}/{path}", {"limit": 50})
    workers: list[Mapping[str, object]] = json.loads(found or b"[]")
    return any(one["name"] == WORKER and one["status"] == "ONLINE" for one in workers)


def _get(url: str, body: Mapping[str, object] | None = None) -> bytes | None:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.read()
    except OSError:
        return None
