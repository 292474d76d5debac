"""A Prefect API for one run, on 127.0.0.1, that lives exactly as long as its parent.

`genenv run` starts it when PREFECT_API_URL is not set. It watches its standard input: when the
parent ends, however it ends, the pipe closes and the server stops. Its database stays under the
root, so the next server has the history of runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any

from flows.running.blank import lay
from flows.up.previous import live_api
from genenv_core.errors import GenenvError

START_TIMEOUT_S = 300.0
"""A start takes 4 to 15 s; on a busy machine it took minutes."""

GRACE_S = 10.0

BRIEF = {"PREFECT_API_BLOCKS_REGISTER_ON_START": "false"}
"""A run uses no blocks, and a server that lists their types on a new root starts 3 s later."""


class LocalServer:
    """A started server, which may not answer yet."""

    def __init__(self, home: Path) -> None:
        """Start it; its log is beside its database in `home`."""
        home.mkdir(parents=True, exist_ok=True)
        # Two servers that create or upgrade one database at once fail; the second waits until the
        # first answers. The kernel frees the lock of a killed process.
        self._lock = (home / "server.lock").open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        lay(home)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{port}/api"
        self._log = home / f"server-{os.getpid()}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "flows.running.local_server", str(port)],
                env={**BRIEF, **os.environ},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C goes to the run, which must still report its end to the server.
                start_new_session=True,
            )

    def wait(self) -> None:
        """Return once it answers; raises GenenvError with the end of its log if it does not."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise GenenvError(f"the Prefect server did not start: {self._last_line()}")
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"{self.url}/health", timeout=5),
            ):
                self._lock.close()
                return
            time.sleep(0.1)
        self.stop()
        raise GenenvError(
            f"the Prefect server did not answer in {START_TIMEOUT_S:.0f} s, see {self._log}"
        )

    def stop(self) -> None:
        """Stop it and wait until it is gone; delete its log if it had started."""
        started = self._lock.closed
        self._lock.close()
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(GRACE_S + 5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if started:
            self._log.unlink(missing_ok=True)

    def _last_line(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        # A crash leaves tracebacks, which may end in frames: look for the exception.
        quoted = [line for line in lines if "Error" in line] or lines or ["no output"]
        return f"{quoted[-1].strip()[:300]} (all of it: {self._log})"


@contextlib.contextmanager
def local_api(home: Path, root: Path | None = None) -> Generator[LocalServer | None]:
    """Start a server, and stop it at the end; yields None if there is one already.

    That is the one PREFECT_API_URL names, or that of a `genenv up` on the root.
    """
    if not os.environ.get("PREFECT_API_URL") and root and (api := live_api(root)):
        os.environ["PREFECT_API_URL"] = api
    if os.environ.get("PREFECT_API_URL"):
        yield None
        return
    server = LocalServer(home)
    os.environ["PREFECT_API_URL"] = server.url
    try:
        yield server
    finally:
        del os.environ["PREFECT_API_URL"]
        server.stop()


def create_app(ephemeral: bool = False) -> Any:
    """Return Prefect's API with our changes."""
    from prefect.server.api.server import create_app

    _lock_before_reading()
    return create_app(ephemeral=ephemeral)


def _lock_before_reading() -> None:
    """Let every transaction that may write take SQLite's write lock first, and wait for it.

    Prefect takes it at the first write. If another connection has written since the first read,
    SQLite refuses that at once, whatever the busy timeout; the API answers 503, and the client
    tries again after two seconds. That happened about once an epoch.
    """
    from prefect.server.database.configurations import AioSqliteConfiguration

    begin = AioSqliteConfiguration.begin_transaction

    def immediate(self: Any, session: Any, with_for_update: bool = False) -> Any:
        return begin(self, session, with_for_update=True)

    AioSqliteConfiguration.begin_transaction = immediate


@contextlib.contextmanager
def in_process(server: LocalServer | None) -> Generator[None]:
    """Use a server, if one was started, for flows of this process; waits until it answers.

    This process is the run, so its end is seen at once without heartbeats; joining the heartbeat's
    thread would cost every epoch about a second.
    """
    from prefect.settings import (
        PREFECT_API_URL,
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        temporary_settings,
    )

    updates: dict[Any, Any] = {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}
    if server:
        server.wait()
        updates[PREFECT_API_URL] = server.url
    with temporary_settings(updates):
        yield


def _serve(port: int) -> None:
    import uvicorn

    server = uvicorn.Server(
        uvicorn.Config(create_app(ephemeral=True), host="127.0.0.1", port=port, log_level="warning")
    )

    def watch() -> None:
        sys.stdin.buffer.read()
        server.should_exit = True
        time.sleep(GRACE_S)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    server.run()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
