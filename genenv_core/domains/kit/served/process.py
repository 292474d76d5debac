"""A server that genenv starts: the environment's package in an interpreter of its own."""

from __future__ import annotations

import atexit
import os
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from select import select

from genenv_core.errors import ConfigError, one_line
from genenv_core.machine.surroundings import environment

SCRIPT = Path(__file__).parent / "serving.py"

START_S = 120.0
"""Longest wait for the app to be imported and to say its port, in seconds."""

QUOTED = 400
"""Letters from the end of the server's log that an error quotes."""


class ServerProcess:
    """Serves `MODULE:APP` on 127.0.0.1: restarts it after its end, and ends with this process.

    Args:
        place: `MODULE:APP`.
        variables: names of environment variables that it gets besides those that every child
            gets.
        python_variable: environment variable with the interpreter.
        package: the package that this interpreter needs, for the error.
    """

    def __init__(
        self, place: str, variables: Sequence[str], python_variable: str, package: str
    ) -> None:
        self._place, self._variables = place, variables
        self._python_variable, self._package = python_variable, package
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._url = ""
        atexit.register(self.stop)

    def url(self) -> str:
        """Return the address of the running server, and start it first where it does not run.

        The address changes with each start. Raises ConfigError where the server does not start.
        """
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()
            return self._url

    def stop(self) -> None:
        """End the server, by its own pid."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
                self._process.wait()
                self._process = None

    def _start(self) -> None:
        python = os.environ.get(self._python_variable)
        place = f"domain.options.serve {self._place!r}"
        if not python or not Path(python).is_file():
            raise ConfigError(
                f"{place}: {self._python_variable} {python or 'is not set'}: name the interpreter "
                f"of an environment with {self._package} and this package"
            )
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                [python, str(SCRIPT), self._place],
                env=environment(os.environ, (*self._variables, "PYTHONPATH")),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
            assert process.stdout is not None
            came, _, _ = select([process.stdout], [], [], START_S)
            port = process.stdout.readline().strip() if came else b""
            if not port:
                process.kill()
                process.wait()
                log.seek(0)
                lines = log.read().decode(errors="replace").strip().splitlines()
                why = one_line(lines[-1], QUOTED) if lines else f"nothing in {START_S:g} s"
                raise ConfigError(f"{place}: it does not start with {python}: {why}")
        self._process, self._url = process, f"http://127.0.0.1:{port.decode()}"
