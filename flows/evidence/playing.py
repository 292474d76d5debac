"""Plays a comparison by the command that people use."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def play_comparison(
    arguments: Sequence[str], *, root: Path, pages: Path, jobs: str
) -> dict[str, Any]:
    """Play `genenv compare` with these arguments and return its result; its pages go to `pages`.

    The result is `genenv_core.compare.page.as_values`. Raises CalledProcessError when a run did
    not finish; the command has printed why.
    """
    pages.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "flows.cli.app", "compare", *arguments, "--jobs", jobs]
    subprocess.run([*command, "--root", root, "-o", pages], check=True)
    return json.loads((pages / "result.json").read_text(encoding="utf-8"))
