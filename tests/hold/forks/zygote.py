"""Forks processes that run a module or a script as Python does, with everything imported.

Stand-ins ask for them at a Unix socket. A forked process gets the stand-in's environment, folder
and files, and its training workers come from a fork server that has their imports too. One whose
stand-in is gone is killed; all are when standard input ends.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import json
import multiprocessing
import multiprocessing.forkserver
import os
import runpy
import selectors
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

PRELOADED = (
    "prefect.cli.flow_run",
    "prefect.cli.worker",
    "prefect.flow_engine",
    "prefect.runner._workspace_supervisor",
    "prefect.workers.process",
    "flows.deploy.stage_on_pool",
    "flows.coevolution",
    "genenv_core.engines.transformers.engine",
    "transformers.generation.utils",
)
WORKERS_PRELOADED = (
    "genenv_core.training.grpo.trainer",
    "genenv_core.training.rwr.trainer",
    "genenv_core.training.warm_start.models",
)
HOLDING = Path(__file__).parents[1] / "sitecustomize.py"


class Zygote:
    """Serves one socket; one thread, so that it may fork."""

    def __init__(self, path: str) -> None:
        """Listen at a path."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._begin)
        self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ, self._end)
        self._forked: dict[int, tuple[socket.socket, int]] = {}
        """Process id -> the stand-in's connection, and a descriptor of the process."""
        self._going = True

    def serve(self) -> None:
        """Fork until standard input ends."""
        while self._going:
            for key, _ in self._selector.select():
                key.data()

    def _end(self) -> None:
        self._going = False
        for pid in self._forked:
            os.killpg(pid, signal.SIGKILL)

    def _begin(self) -> None:
        connection, _ = self._listener.accept()
        head, files, _, _ = socket.recv_fds(connection, 4, 3)
        request = json.loads(_whole(connection, int.from_bytes(head, "big")))
        pid = os.fork()
        if not pid:
            self._forget(connection)
            _become(request, files)
        for file in files:
            os.close(file)
        with suppress(ProcessLookupError, PermissionError):
            os.setpgid(pid, pid)  # it does so too: whoever comes first
        process = os.pidfd_open(pid)
        self._forked[pid] = connection, process
        connection.sendall(f"{pid}\n".encode())
        self._selector.register(process, selectors.EVENT_READ, lambda: self._ended(pid))
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._left(pid))

    def _left(self, pid: int) -> None:
        """Kill the process whose stand-in is gone."""
        if pid in self._forked:
            self._selector.unregister(self._forked[pid][0])
            os.killpg(pid, signal.SIGKILL)

    def _ended(self, pid: int) -> None:
        connection, process = self._forked.pop(pid)
        _, status = os.waitpid(pid, 0)
        self._selector.unregister(process)
        os.close(process)
        with suppress(KeyError):
            self._selector.unregister(connection)
        with suppress(OSError):
            connection.sendall(f"{status}\n".encode())
        connection.close()

    def _forget(self, connection: socket.socket) -> None:
        """Close, in a forked process, what is the zygote's."""
        self._selector.close()
        self._listener.close()
        connection.close()
        for other, process in self._forked.values():
            other.close()
            os.close(process)


def _whole(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += connection.recv(size - len(found))
    return found


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Run what a stand-in asks for, in its place; does not return."""
    os.setpgid(0, 0)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # the environment names another
    _hold()
    from prefect.context import refresh_global_settings_context
    from prefect.logging import configuration

    from genenv_core.training.processes import workers

    refresh_global_settings_context()  # they were read when Prefect was imported
    configuration.PROCESS_LOGGING_CONFIG.clear()
    configuration.setup_logging()
    server: Any = multiprocessing.forkserver._forkserver
    server.ensure_running = lambda: None  # it is the parent's, which this process cannot wait for
    workers.get_context = lambda _: multiprocessing.get_context("forkserver")
    workers._start = functools.partial(start_worker, os.getpid())
    sys.executable = os.path.join(os.path.dirname(sys.argv[1]), "python")
    sys.argv = request["words"]
    if sys.argv[0] == "-m":
        del sys.argv[0]
        if "." in sys.argv[0]:
            sys.modules.pop(sys.argv[0], None)  # it is run anew, under the name `__main__`
        runpy.run_module(sys.argv[0], run_name="__main__")
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")
    sys.exit(0)


def start_worker(leader: int, *arguments: Any) -> None:
    """Begin a training worker as the product does, held where a test wants it held."""
    from genenv_core.training.processes import workers

    os.setpgid(0, leader)
    workers._start(*arguments)
    _hold()


def _hold() -> None:
    """Hold this process where a test asks for it, as Python does at a start of its own."""
    if "GENENV_TEST_HOLDS" in os.environ:
        spec = importlib.util.spec_from_file_location("holding", HOLDING)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


def main() -> None:
    """Import everything, say so, and serve."""
    from flows.running.environment import quiet

    quiet()
    multiprocessing.set_forkserver_preload(["flows.running.environment", *WORKERS_PRELOADED])
    multiprocessing.forkserver.ensure_running()
    for name in (*PRELOADED, *sys.argv[2:]):
        __import__(name)
    if duckdb := sys.modules.get("duckdb"):  # as in tests/storm/zygote.py
        duckdb.default_connection().close()
    gc.freeze()
    zygote = Zygote(sys.argv[1])
    print("ready", flush=True)
    zygote.serve()


if __name__ == "__main__":
    main()
