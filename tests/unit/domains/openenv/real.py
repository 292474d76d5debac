"""Environments that a lock makes, and a server of a real package in one of them."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tests.pipeline.commands import REPOSITORY
from tests.waiting import until

LOCK = Path(__file__).parent / "openenv.lock"
EXAMPLES = REPOSITORY / "docs" / "examples"
ENVIRONMENT = REPOSITORY / ".venv-openenv"


def python() -> Path:
    """Return the interpreter that has openenv."""
    return installed(ENVIRONMENT, LOCK)


def installed(environment: Path, lock: Path) -> Path:
    """Return the interpreter of an environment, which is made from a lock once."""
    found, stamp = environment / "bin" / "python", environment / ".installed"
    environment.mkdir(exist_ok=True)
    with (environment / ".lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # of two processes of pytest one installs
        if not stamp.exists() or stamp.stat().st_mtime < lock.stat().st_mtime:
            subprocess.run([sys.executable, "-m", "venv", environment], check=True)
            pip = [str(found), "-m", "pip", "install", "-qq", "--no-deps", "--require-hashes"]
            subprocess.run([*pip, "-r", lock], check=True)
            stamp.touch()
    return found


class RealServer:
    """A server of an app in a folder on 127.0.0.1; stopped by its own pid."""

    def __init__(
        self,
        log: Path,
        app: str = "openenv_sums:app",
        folder: Path = EXAMPLES,
        interpreter: Callable[[], Path] = python,
        **variables: str,
    ) -> None:
        self._log, self._variables = log, variables
        self._app, self._folder, self._python = app, folder, interpreter()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Serve, and return once it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(self._python, "-m", "uvicorn", self._app, "--host", "127.0.0.1"),
                    *("--port", str(self.port), "--log-level", "warning"),
                ],
                cwd=self._folder,
                env={**os.environ, **self._variables, "PYTHONPATH": ""},
                stdout=log,
                stderr=log,
            )
        until(self._answers)

    def kill(self) -> None:
        """End it at once, as a machine that fails does."""
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False
