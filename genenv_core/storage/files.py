"""Writes files that appear whole or not at all, and gives a file a second name."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path


def link_or_copy(source: Path, target: Path) -> None:
    """Put a file under a second name: by a hard link, or as a copy on another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def sync(path: Path) -> None:
    """Return once the bytes of a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def temporary(folder: Path, data: bytes, *, durable: bool = False, mode: int | None = None) -> Path:
    """Write a new file into a folder, under a name of its own; a `durable` one is on the disk."""
    path = folder / uuid.uuid4().hex
    try:
        path.write_bytes(data)
        if durable:
            sync(path)
        if mode is not None:
            path.chmod(mode)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return path


def create(path: Path, data: bytes) -> None:
    """Write a new file, whole or not at all; raises FileExistsError for a taken name."""
    made = temporary(path.parent, data, durable=True, mode=0o644)
    try:
        os.link(made, path)  # unlike a rename, it replaces nothing
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise FileExistsError(path) from None
        os.rename(made, path)
    finally:
        made.unlink(missing_ok=True)


def move_over(made: Path, path: Path, *, durable: bool = False) -> None:
    """Give a temporary file its name, in place of any other file; `durable`: also on the disk."""
    try:
        os.replace(made, path)
    finally:
        made.unlink(missing_ok=True)
    if durable:
        sync(path.parent)
