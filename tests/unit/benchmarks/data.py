"""Where the official data of the benchmarks lies; the project has no copy of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[3]
SHARED = Path(os.environ.get("GENENV_SHARED", REPOSITORY.parent / "shared")) / "benchmarks"


def deep(levels: int, of: type = list) -> Any:
    """Return a value inside of so many lists, or dicts."""
    value: Any = 1
    for _ in range(levels):
        value = [value] if of is list else {"x": value}
    return value


def official(name: str) -> Path:
    """Return the folder of a benchmark's official data; skips the test where there is none."""
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(
            f"no official data in {folder}: GENENV_SHARED names the folder above benchmarks/"
        )
    return folder
