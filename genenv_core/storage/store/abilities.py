"""Tries, before any work, what the file system of a root must be able to do.

Network mounts and file systems in user space (Azure Files, gcsfuse, blobfuse, exFAT, some NFS
mounts) lack some of it. Without the trial, a run would find out after its first stage.
"""

from __future__ import annotations

import errno
import fcntl
import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from genenv_core.errors import StorageError

_tried: set[tuple[Path, bool]] = set()
"""Folders that have passed in this process, and whether the trial included links."""

ELSEWHERE = "choose a --root on another file system (ext4, XFS, NFS 4), or s3://BUCKET/PREFIX"

TOGETHER = (
    "files move between the folders of a root. Put the folder back, and let the whole root be a "
    "link to the larger disk"
)


class _Missing(Exception):
    """The name of a missing ability, and how the trial showed it."""


def check_abilities(root: Path, folders: Sequence[str], *, links: bool) -> None:
    """Raise StorageError unless the file system of `root` can hold a root.

    The file system must lock files, create a file exclusively, and replace a file by a rename; with
    `links`, it must have exclusive hard links. All existing `folders` must lie on it, and
    `root/tmp` must exist. The trial runs once a process, in less than a millisecond on a disk.
    """
    if (root, links) in _tried:
        return
    for folder in folders:
        if is_apart(root / "tmp", root / folder):
            raise StorageError(
                f"root {root}: the folder {folder} ({os.path.realpath(root / folder)}) is on "
                f"another file system or mount than the rest: {TOGETHER}"
            )
    one, two = root / "tmp" / uuid.uuid4().hex, root / "tmp" / uuid.uuid4().hex
    trials: list[Callable[[Path, Path], None]] = [_exclusive, _locks, _renames]
    try:
        for trial in [*trials, _links] if links else trials:
            trial(one, two)
    except _Missing as missing:
        raise StorageError(
            f"root {root}: its file system lacks {missing}. A root needs that for processes that "
            f"write side by side: {ELSEWHERE}"
        ) from missing
    finally:
        one.unlink(missing_ok=True)
        two.unlink(missing_ok=True)
    _tried.add((root, links))


def is_apart(here: Path, there: Path) -> bool:
    """Return whether no file can move between two folders; False where a folder is missing."""
    try:
        if here.stat().st_dev != there.stat().st_dev:
            return True
        # Two mounts of one device have the same number. Linux compares mounts before it looks for
        # the file, which does not exist, so the rename leaves nothing behind.
        name = uuid.uuid4().hex
        os.rename(here / name, there / name)
    except OSError as error:
        return error.errno == errno.EXDEV
    return False


def _exclusive(one: Path, two: Path) -> None:
    handle = os.open(one, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    os.close(handle)
    try:
        os.close(os.open(one, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        return
    raise _Missing("exclusive creation (a file was created twice under one name)")


def _locks(one: Path, two: Path) -> None:
    with one.open("ab") as first, one.open("ab") as second:
        try:
            fcntl.lockf(first, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as SQLite locks
            fcntl.lockf(first, fcntl.LOCK_UN)
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise _Missing(f"file locks ({error.strerror})") from error
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
    raise _Missing("locks that lock (two took the same one)")


def _renames(one: Path, two: Path) -> None:
    two.write_bytes(b"2")
    try:
        os.replace(two, one)
    except OSError as error:
        raise _Missing(f"renames that replace a file ({error.strerror})") from error
    if two.exists() or one.read_bytes() != b"2":
        raise _Missing("renames that replace a file (the old one is still there)")


def _links(one: Path, two: Path) -> None:
    try:
        os.link(one, two)
    except OSError as error:
        raise _Missing(f"hard links ({error.strerror})") from error
    if not os.path.samefile(one, two):
        raise _Missing("hard links (a link is a copy)")
    try:
        os.link(one, two)
    except FileExistsError:
        return
    raise _Missing("exclusive hard links (one was made over a name that was taken)")
