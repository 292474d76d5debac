"""Processes that are forked from one with everything imported, where a test is not about a start.

Imports are most of what a process of Prefect or genenv costs: three seconds of CPU for Prefect and
the flows, as many for a model, and six for a training worker. A test starts `Forks.python` in the
place of Python. That is a stand-in (`stand_in.py`), which looks from outside as the process would:
it passes signals on and ends as the forked process does, which dies with it. What the forked one
starts by `sys.executable` is forked too.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from tests.pipeline.commands import REPOSITORY, environment

STAND_IN = Path(__file__).with_name("stand_in.py")
PROGRAM = """\
#!/bin/sh
case "$1" in
-m | *.py) exec {stand_in} "$@" ;;
*) exec {python} "$@" ;;
esac
"""


class Forks:
    """A process that forks, for a `with` block; the block begins when its imports are done."""

    def __init__(self, folder: Path, *imported: str) -> None:
        """Start it, with these modules imported too; the folder gets its socket and its log."""
        self.log, self.python = folder / "log", str(folder / "python")
        """The program that stands for Python's: only `-m MODULE` and `SCRIPT` are forked."""
        socket = str(folder / "socket")
        words = (sys.executable, "-S", "-E", str(STAND_IN), socket)
        program = PROGRAM.format(python=shlex.quote(sys.executable), stand_in=shlex.join(words))
        (folder / "python").write_text(program)
        (folder / "python").chmod(0o700)
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.hold.forks.zygote", socket, *imported],
                cwd=REPOSITORY,
                env=environment(),  # what it is given of Prefect is that of each process
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
            )

    def __enter__(self) -> Forks:
        """Wait until it serves."""
        assert self._process.stdout
        assert self._process.stdout.readline() == b"ready\n", self.log.read_text()
        return self

    def __exit__(self, *_: object) -> None:
        """End it, and with it whatever it forked that is still there."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(60)
