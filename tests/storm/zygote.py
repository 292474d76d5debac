"""A process with everything imported that forks victims: imports would take most of their time.

Reads one JSON line a victim, forks it, answers with its process id, and with its wait status once
it has ended. A victim runs the command line's own `main`; its training workers come from a fork
server that has their imports too, and join its process group.
"""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.forkserver
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.storm.storm import Zygote

PRELOADED = [
    "flows.coevolution",
    "flows.cli.runs.live",
    "mlflow.store.tracking.sqlalchemy_store",
    "mlflow.store.model_registry.sqlalchemy_store",
    "genenv_core.engines.transformers.engine",
]
WORKERS_PRELOADED = [
    "genenv_core.training.grpo.trainer",
    "genenv_core.training.rwr.trainer",
    "genenv_core.training.warm_start.models",
]


@contextmanager
def zygote_of_the_api(folder: Path) -> Iterator[Zygote]:
    """Yield a process whose victims use the Prefect API of this one; ends it afterwards.

    It writes its log into the folder.
    """
    from prefect.settings import PREFECT_API_URL

    from tests.storm.storm import Zygote

    started = Zygote(
        {**os.environ, "PREFECT_API_URL": str(PREFECT_API_URL.value())}, folder / "log"
    )
    try:
        yield started
    finally:
        started.close()


def main() -> None:
    """Serve until standard input ends."""
    from flows.running.environment import prepare

    prepare()
    multiprocessing.set_forkserver_preload(["flows.running.environment", *WORKERS_PRELOADED])
    multiprocessing.forkserver.ensure_running()
    from flows.cli import app

    for name in [*PRELOADED, *WORKERS_PRELOADED]:
        __import__(name)
    # The import of DuckDB begins a thread that a victim does not have. At its end it waits for that
    # thread, and without end where another one got the same stack.
    if duckdb := sys.modules.get("duckdb"):
        duckdb.default_connection().close()
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if not pid:
            _become_victim(request)
            app.main()
        print(pid, flush=True)
        print(os.waitpid(pid, 0)[1], flush=True)


def _become_victim(request: dict) -> None:
    from tests.storm.points import Plan
    from tests.storm.victim import prepare

    output = os.open(Path(request["output"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = ["genenv", *request["arguments"]]
    prepare(Plan(**request["plan"]))


if __name__ == "__main__":
    main()
