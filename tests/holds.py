"""Where processes that a test does not start itself are held at work, so that it acts meanwhile.

A pod's and a work pool's processes import `tests/hold/sitecustomize.py`, which does the holding.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]


class Holds:
    """The holds of the processes that have `environment`, noted in a folder that is made here."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        paths = (str(REPOSITORY), str(REPOSITORY / "tests" / "hold"))
        self.environment = {
            "PYTHONPATH": os.pathsep.join(paths),
            "GENENV_TEST_HOLDS": str(folder),
        }

    def at(self, part: str, number: int = 1) -> Path:
        """Hold a process before its n-th file with `part` in its path, until its work is to end.

        `*` stands for anything in `part`. One process is held, once. The file returned exists when
        it is; who deletes the file lets the process go on.
        """
        name = uuid.uuid4().hex
        made = self._folder / f"{name}.new"
        made.write_text(f"{number} {part}")
        made.rename(made.with_suffix(".wanted"))
        return made.with_suffix(".held")

    def clear(self) -> None:
        """Forget what no process came to, and let go on what is held."""
        for path in self._folder.iterdir():
            path.unlink(missing_ok=True)
