"""Holds a thread of a process at a file that it is about to make, until the work is to end.

Python imports this by its name at every start of an interpreter whose environment is that of
`tests.holds.Holds`, which says where to hold. So a test acts at a known point of the work, on any
machine, and the work need not be long.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

FOLDER = Path(os.environ["GENENV_TEST_HOLDS"])
BOUND_S = 240.0

counts: dict[str, int] = {}


def ending() -> bool:
    """Return whether this process, or its parent where it is a training worker, was told to end."""
    progress = sys.modules.get("tasks.stage.progress")
    workers = sys.modules.get("genenv_core.training.processes.workers")
    stop = getattr(workers, "_stop", None)
    cancelled = getattr(progress, "_cancelled", None)
    return any(event is not None and event.is_set() for event in (stop, cancelled))


def hook(event: str, arguments: tuple[object, ...]) -> None:
    """Count the files that are made; wait at the one that is asked for, which is not made yet."""
    if event not in ("os.link", "os.rename") or not os.path.exists(str(arguments[0])):
        return  # a root's folders are tried by moving what is not there
    target = str(arguments[1])
    for wanted in FOLDER.glob("*.wanted"):
        with suppress(FileNotFoundError):  # another process is held there
            number, part = wanted.read_text().split(" ", 1)
            if not fnmatchcase(target, f"*{part}*"):
                continue
            counts[part] = counts.get(part, 0) + 1
            if counts[part] != int(number):
                continue
            held = wanted.rename(wanted.with_suffix(".held"))
            deadline = time.monotonic() + BOUND_S
            while held.exists() and not ending() and time.monotonic() < deadline:
                time.sleep(0.01)


sys.addaudithook(hook)
