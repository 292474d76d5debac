"""Starts and stops the processes of `genenv up`, each in a process group of its own with a log."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

POLL_S = 0.1


class ChildProcess:
    """A started process and its log."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> None:
        """Start it. Ctrl-C in the terminal does not reach it: `genenv up` stops it in order."""
        self.name, self.log = name, log
        with log.open("ab") as output:
            self._from = output.tell()
            self._process = subprocess.Popen(
                list(command),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Return its pid, which is that of its group as well."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Return its exit status, None while it runs."""
        return self._process.poll()

    def reason(self) -> str:
        """Return the line of its log that says most about why it ended."""
        with self.log.open("rb") as log:
            log.seek(self._from)
            text = log.read()[-65536:].decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        quoted = [line for line in lines if "Error" in line or "error" in line] or lines
        return f"{(quoted or ['no output'])[-1][:300]} (all of it: {self.log})"

    def end_children(self, grace_s: float) -> None:
        """Ask the processes that it started to end, and wait for them up to the grace."""
        asked: set[psutil.Process] = set()
        deadline = time.monotonic() + grace_s
        while self.status is None and time.monotonic() < deadline:
            there = self._family(recursive=False)
            for child in there - asked:  # one may have started meanwhile
                with contextlib.suppress(psutil.Error):
                    child.terminate()
            asked |= there
            if not there:
                return
            time.sleep(POLL_S)

    def ask(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def stop(self, grace_s: float, number: signal.Signals = signal.SIGTERM) -> None:
        """End it and all that it started; after the grace, kill the rest."""
        family = self._family()
        self.ask(number)
        deadline = time.monotonic() + grace_s
        while self.status is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
            family |= self._family()
        self.kill(family)

    def kill(self, family: set[psutil.Process] | None = None) -> None:
        """Kill it and the rest of its family at once."""
        family = (family or set()) | self._family()
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        for member in family:
            with contextlib.suppress(psutil.Error):  # by pid and start time, so only the right one
                member.kill()
        self._process.wait()

    def _family(self, *, recursive: bool = True) -> set[psutil.Process]:
        """Return its descendants, also those in sessions of their own; or its children alone."""
        with contextlib.suppress(psutil.Error):
            return set(psutil.Process(self.pid).children(recursive=recursive))
        return set()
