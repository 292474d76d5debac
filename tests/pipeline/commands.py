"""`genenv` in a process of its own, as a person or a script calls it, or in this one."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from flows.cli.app import main

REPOSITORY = Path(__file__).parents[2]


def environment(**changes: str) -> dict[str, str]:
    """Return this process's environment without the variables of the session's API."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "GENENV"))}
    return {**kept, "PYTHONPATH": str(REPOSITORY), **changes}


def genenv(
    *arguments: str, cwd: Path, timeout: float = 300, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the command, with these variables in its environment; return it once it has ended."""
    return subprocess.run(
        [sys.executable, "-m", "flows.cli.app", *arguments],
        cwd=cwd,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def said(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, where what it says counts: its imports are done here.

    `variables` are in its environment. A root that it writes to is an absolute path: a process
    keeps the stores that it opened by the text of their roots.
    """
    out, err = io.StringIO(), io.StringIO()
    with (
        _logging_as_it_was(),
        chdir(cwd),
        redirect_stdout(out),
        redirect_stderr(err),
        patch.dict(os.environ, environment(**variables), clear=True),
        patch.object(sys, "argv", ["genenv", *arguments]),
        patch.object(os, "_exit", sys.exit),  # the process ends so where threads are left
        pytest.raises(SystemExit) as ended,
    ):
        main()
    status = ended.value.code or 0
    assert isinstance(status, int)
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


@contextmanager
def _logging_as_it_was() -> Iterator[None]:
    """Take back what a command does to the process's loggers: it has the process for itself."""
    loggers = [logging.getLogger(name) for name in ("genenv", "genenv.storage.s3")]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    last = logging.lastResort
    try:
        yield
    finally:
        logging.lastResort = last
        for logger, level, handlers in before:
            logger.setLevel(level)
            logger.handlers[:] = handlers


def refused(done: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    """Assert the exit status, and an error of one line that contains these words."""
    assert done.returncode == status, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("genenv: ")
    for word in words:
        assert word in lines[0], lines[0]
    assert "Traceback" not in done.stdout + done.stderr
