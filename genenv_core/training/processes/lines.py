"""Log lines that a training process writes into a file, for the process that asked for the update.

A training process has no handler of the run's own: without the file, its lines would be lost, or
stand on its stderr alone. This module loads only the standard library.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator
from pathlib import Path

log = logging.getLogger("genenv.training")


@contextlib.contextmanager
def kept(path: Path) -> Generator[None]:
    """Return a context in which genenv's log lines of this process go into a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, "w", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(levelno)d %(message)s"))
    logger = logging.getLogger("genenv")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
        handler.close()


def told(path: Path) -> None:
    """Log the lines of such a file in this process, and remove it; a missing file has none."""
    with contextlib.suppress(OSError):
        lines = path.read_text("utf-8").splitlines()
        path.unlink()
        for line in lines:
            level, _, message = line.partition(" ")
            log.log(int(level) if level.isdigit() else logging.INFO, "%s", message or line)
