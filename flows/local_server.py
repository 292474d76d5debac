"""A Prefect API for one run, on 127.0.0.1, that lives exactly as long as its parent.

Started by `genenv run` when PREFECT_API_URL is not set. It watches its standard input: when the
parent ends, however it ends, the pipe closes and the server stops. Its database stays under the
root, so the history of runs is there for the next one.
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
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flows.up.previous import live_api
from genenv_core.errors import GenenvError

START_TIMEOUT_S = 300.0
"""It takes 5 to 12 s; on a machine that does much else, minutes were seen."""

GRACE_S = 10.0


class LocalServer:
    """A server that was started and may not answer yet."""

    def __init__(self, home: Path) -> None:
        """Start it; its log is beside its database in `home`."""
        home.mkdir(parents=True, exist_ok=True)
        # Two servers that create or upgrade one database at once fail; the second waits until the
        # first answers. The kernel frees the lock of a process that was killed.
        self._lock = (home / "server.lock").open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{port}/api"
        self._log = home / f"server-{os.getpid()}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "flows.local_server", str(port)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C goes to the run, which still has to tell the server how it ended.
                start_new_session=True,
            )

    def wait(self) -> None:
        """Return once it answers; raises GenenvError with the end of its log if it does not."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise GenenvError(f"the Prefect server did not start: {self._last_line()}")
            with (
                contextlib.suppress(urllib.error.URLError, OSError),
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
        """Stop it and wait until it is gone; the log of one that started is not kept."""
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
        # A crash leaves tracebacks, whose last lines are frames: look for what was raised.
        told = [line for line in lines if "Error" in line] or lines or ["no output"]
        return f"{told[-1].strip()[:300]} (all of it: {self._log})"


@contextlib.contextmanager
def local_api(home: Path, root: Path | None = None) -> Iterator[LocalServer | None]:
    """Start a server, and stop it at the end; yields None where there is one already.

    That is what PREFECT_API_URL names, or the one of a `genenv up` on the root.
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
    """Return Prefect's API as we serve it."""
    from prefect.server.api.server import create_app

    _lock_before_reading()
    return create_app(ephemeral=ephemeral)


def _lock_before_reading() -> None:
    """Let every transaction that may write take SQLite's write lock first, and wait for it.

    Prefect takes it at the first write. Where another connection has written since the first read,
    SQLite refuses that at once, whatever the busy timeout; the API answers 503, and the client
    tries again after two seconds, which every epoch met about once.
    """
    from prefect.server.database.configurations import AioSqliteConfiguration

    begin = AioSqliteConfiguration.begin_transaction

    def immediate(self: Any, session: Any, with_for_update: bool = False) -> Any:
        return begin(self, session, with_for_update=True)

    AioSqliteConfiguration.begin_transaction = immediate


@contextlib.contextmanager
def in_process(server: LocalServer | None) -> Iterator[None]:
    """Use a server, when one was started, for flows of this very process; waits until it answers.

    This process is the run, so its end is seen at once and no heartbeat has to prove it; joining
    the heartbeat's thread would cost every epoch about a second.
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
