"""Finds files of a download by name, reads them, and computes their digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from genenv_core.errors import ConfigError, DataError


def required(data: Path, name: str) -> Path:
    """Return a file or folder of a download; raises ConfigError when it is missing."""
    place = data / name
    if not place.exists():
        where = "there is no such folder" if not data.is_dir() else f"it has no {name}"
        raise ConfigError(f"--data {data}: {where}; docs/benchmarks says what it needs")
    return place


def read_json(path: Path) -> Any:
    """Return a JSON file's value; raises DataError with the file and the place of the fault."""
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: no JSON: {error}; download the file again") from error


def read_lines(path: Path) -> list[Any]:
    """Return the values of a file with one JSON value a line; raises DataError as `read_json`."""
    found: list[Any] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            if line.strip():
                found.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path}, line {number}: no JSON: {error}; download the file again"
            ) from error
    return found


def digest_of(data: Path, files: Iterable[Path]) -> str:
    """Return the SHA-256 over the names below `data` and the contents of these files."""
    total = hashlib.sha256()
    for path in sorted(files):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{path.relative_to(data).as_posix()} {content}\n".encode())
    return total.hexdigest()
