"""Plays a comparison by the command that people use, and returns its result."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def compared(arguments: Sequence[str], *, root: Path, pages: Path, jobs: str) -> dict[str, Any]:
    """Return what `genenv compare` with these arguments came to; its pages are in `pages`.

    Raises CalledProcessError when a run did not finish; the command has said why.
    """
    pages.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "flows.cli.app", "compare", *arguments, "--jobs", jobs]
    subprocess.run([*command, "--root", root, "-o", pages], check=True)
    return json.loads((pages / "result.json").read_text(encoding="utf-8"))
