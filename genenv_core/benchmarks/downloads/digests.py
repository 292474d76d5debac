"""Computes names by content: SHA-256, and the SHA-1 by which git names files and folders."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FILE_MODE, RUN_MODE, FOLDER_MODE = "100644", "100755", "40000"


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """An entry of a folder in git; `mode` says what kind of entry."""

    mode: str
    name: str
    git_id: str
    size: int = 0


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def git_id_of(path: Path) -> str:
    """Return the id that git gives a file of this content."""
    total = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(2**20):
            total.update(chunk)
    return total.hexdigest()


def git_id_of_bytes(content: bytes) -> str:
    """Return the id that git gives a file with this content."""
    return _git_id(b"blob", content)


def git_id_of_entries(entries: Iterable[TreeEntry]) -> str:
    """Return the id that git gives a folder with these entries."""
    lines = [
        f"{entry.mode} {entry.name}".encode() + b"\0" + bytes.fromhex(entry.git_id)
        for entry in sorted(entries, key=_order)
    ]
    return _git_id(b"tree", b"".join(lines))


def git_id_of_folder(folder: Path) -> str:
    """Return the id that git gives a folder's files, without hidden ones and folders."""
    return git_id_of_entries(
        TreeEntry(FILE_MODE, path.name, git_id_of(path))
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith(".")
    )


def _order(entry: TreeEntry) -> bytes:
    return (entry.name + ("/" if entry.mode == FOLDER_MODE else "")).encode()


def _git_id(kind: bytes, content: bytes) -> str:
    head = kind + b" %d\0" % len(content)
    return hashlib.sha1(head + content, usedforsecurity=False).hexdigest()
