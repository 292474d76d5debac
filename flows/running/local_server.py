"""Serves a Prefect API for one run, on 127.0.0.1, exactly as long as its parent lives.

`genenv run` starts the server when PREFECT_API_URL is not set. The server watches its standard
input: when the parent ends, however it ends, the pipe closes and the server stops. Its database
stays under the root, so the next server has the history of runs. If it dies under its parent,
genenv starts it again on its port, where Prefect's clients find it: they try for about a minute.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
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
from flows.running.outcome import ending, explained, full
from flows.running.previous import live_api
from flows.running.server_program import GRACE_S
from genenv_core.errors import GenenvError

log = logging.getLogger("genenv.server")

START_TIMEOUT_S = 300.0
"""A start takes 4 to 15 s; on a busy machine it took minutes."""

RESTARTS = 3
"""How often in a row genenv restarts a server that dies."""

STEADY_S = 60.0
"""After a server lived this long, its death begins the count anew."""

BRIEF = {
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
    "PREFECT_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
}
"""A run uses no blocks. A server that lists their types on a new root starts 3 s later. To compare
them with the last list, it would import every integration of Prefect, Kubernetes' client too."""


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
        self.home, self.url, self._port = home, f"http://127.0.0.1:{port}/api", port
        self.death = ""
        """How it ended for good during the run, or ''."""
        self._log = home / f"server-{os.getpid()}.log"
        self._log.write_bytes(b"")
        self._turn = threading.Lock()
        self._stopping = False
        self._process = self._launch()

    def _launch(self) -> subprocess.Popen[bytes]:
        self._launched = time.monotonic()
        with self._log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "flows.running.server_program", str(self._port)],
                env={**BRIEF, **os.environ},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C goes to the run, which must still report its end to the server.
                start_new_session=True,
            )

    def wait(self) -> None:
        """Return once it answers; raises GenenvError, with the reason, if it does not.

        From then on a thread watches it, and restarts it when it dies.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if (status := self._process.poll()) is not None:
                raise GenenvError(
                    f"the Prefect server did not start: {full(self.home) or ending(status)}; "
                    f"{self._last_line()}"
                )
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"{self.url}/health", timeout=5),
            ):
                self._lock.close()
                threading.Thread(target=self._watch, name="server", daemon=True).start()
                return
            time.sleep(0.1)
        self.stop()
        raise GenenvError(
            f"the Prefect server did not answer in {START_TIMEOUT_S:.0f} s, see {self._log}"
        )

    def stop(self) -> None:
        """Stop it and wait until it has ended; delete its log if it had started."""
        started = self._lock.closed
        self._lock.close()
        with self._turn:
            self._stopping = True
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(GRACE_S + 5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if started and not self.death:
            self._log.unlink(missing_ok=True)

    def _watch(self) -> None:
        """Restart it when it dies, and report that at once; give up when it keeps dying."""
        deaths = 0
        while True:
            status = self._process.wait()
            deaths = 1 if time.monotonic() - self._launched > STEADY_S else deaths + 1
            with self._turn:
                if self._stopping:
                    return
                how = full(self.home) or ending(status)
                if deaths <= RESTARTS:
                    with contextlib.suppress(OSError):  # the next turn says why
                        self._process = self._launch()
                else:
                    self.death = f"the Prefect server of this run has ended: {how}"
            _tell(self.death or f"the Prefect server has ended ({how}) and is started again")
            if self.death:
                return

    def _last_line(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        # A crash leaves tracebacks, which may end in frames: look for the exception.
        quoted = [line for line in lines if "Error" in line] or lines or ["no output"]
        return f"{quoted[-1].strip()[:300]} (all of it: {self._log})"


@contextlib.contextmanager
def local_api(home: Path, root: Path | None = None) -> Generator[LocalServer | None]:
    """Start a server, and stop it at the end; yields None where a server runs already.

    That one is PREFECT_API_URL's, or that of a `genenv up` on the root. Errors of Prefect inside
    the block become GenenvError where their cause is known (`explained`).
    """
    if not os.environ.get("PREFECT_API_URL") and root and (api := live_api(root)):
        os.environ["PREFECT_API_URL"] = api
    if os.environ.get("PREFECT_API_URL"):
        with explained(None):
            yield None
        return
    server = LocalServer(home)
    os.environ["PREFECT_API_URL"] = server.url
    try:
        with explained(server):
            yield server
    finally:
        del os.environ["PREFECT_API_URL"]
        server.stop()


def _tell(text: str) -> None:
    from tasks.stage.progress import Event, emit

    log.warning("%s", text)
    emit(Event("server", message=text))


@contextlib.contextmanager
def in_process(server: LocalServer | None) -> Generator[None]:
    """Use a started server, if any, for flows of this process; wait until it answers.

    This process is the run, so its end shows at once without heartbeats. Joining the heartbeat's
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
    with temporary_settings(updates), _patient() if server else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def _patient() -> Generator[None]:
    """Let each of Prefect's clients wait while the server restarts.

    A client repeats a refused connection only after one that succeeded, as the address may be
    wrong. Prefect makes a client for each flow run, and this server has answered before.
    """
    from prefect.client.base import PrefectHttpxAsyncClient, PrefectHttpxSyncClient

    always = property(lambda _: True, lambda _, value: None)
    kinds: tuple[Any, ...] = (PrefectHttpxAsyncClient, PrefectHttpxSyncClient)
    # The value of a block around this one, None without one.
    before: list[Any] = [kind.__dict__.get("_has_connected") for kind in kinds]
    for kind in kinds:
        kind._has_connected = always
    try:
        yield
    finally:
        for kind, old in zip(kinds, before, strict=True):
            if old is None:
                del kind._has_connected
            else:
                kind._has_connected = old
