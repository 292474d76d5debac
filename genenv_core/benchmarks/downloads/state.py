"""Finds what a folder has of a download, and whether that is what the source pins.

For files without a pin, `RECEIPTS` holds the SHA-256 of the fetched ones, which shows later
changes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from genenv_core.benchmarks.downloads.digests import git_id_of, git_id_of_folder, sha256_of
from genenv_core.benchmarks.downloads.sources import (
    Archive,
    ByHand,
    HubFile,
    Part,
    RepoFile,
    RepoFolder,
    ToolDocs,
    Wheel,
)
from genenv_core.benchmarks.files import digest_of

RECEIPTS = ".genenv-fetched.json"
Receipts = Mapping[str, str]


class FileState(StrEnum):
    """How a file or folder stands to the official one."""

    MISSING = "missing"
    EQUAL = "equal"
    """It has the digest that the source pins."""
    DIFFERENT = "different"
    """It has another digest than the source pins, or than after its download."""
    AS_FETCHED = "as fetched"
    """The source pins no digest, and it is as `genenv data fetch` left it."""
    UNKNOWN = "unknown"
    """It has no digest to compare it with."""


@dataclass(frozen=True, slots=True)
class FileLook:
    """A file or folder, its state, and the digests behind it, with their kind."""

    to: str
    state: FileState
    expected: str = ""
    found: str = ""

    def why(self) -> str:
        """Return a sentence on why it is refused."""
        return f"{self.to}: expected {self.expected}, found {self.found}"


def looks(part: Part, folder: Path, receipts: Receipts) -> Iterator[FileLook]:
    """Yield a look at each file or folder of a part."""
    match part:
        case RepoFile():
            yield _look(folder, part.to, f"git id {part.git_id}")
        case RepoFolder():
            yield _look(folder, part.to, f"git id {part.git_id}")
        case Wheel():
            for to, (_, git_id) in part.members.items():
                yield _look(folder, to, f"git id {git_id}")
        case ToolDocs():
            yield _look(folder, part.to, f"sha256 {part.sha256}")
        case HubFile() | ByHand():
            yield _against_receipt(folder, part.to, receipts, (folder / part.to).is_file())
        case Archive():
            there = any(files_of(part, folder))
            yield _against_receipt(folder, name_of(part), receipts, there)


def name_of(part: Archive) -> str:
    """Return a pattern for all files of an archive."""
    return f"{part.to}/*/*/*/{part.keep}"


def files_of(part: Archive, folder: Path) -> Iterator[Path]:
    """Yield the files of an archive in a folder."""
    return folder.glob(name_of(part))


def digest_at(folder: Path, to: str, kind: str) -> str:
    """Return kind and digest of a file, of a folder, or of the files that a pattern names."""
    path = folder / to
    if "*" in to:
        return f"sha256 {digest_of(folder, folder.glob(to))}"
    if kind == "sha256":
        return f"sha256 {sha256_of(path)}"
    return f"git id {git_id_of_folder(path) if path.is_dir() else git_id_of(path)}"


def read_receipts(folder: Path) -> dict[str, str]:
    """Return the notes on fetched parts; {} where their file is missing or unreadable."""
    try:
        value: Any = json.loads((folder / RECEIPTS).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    found = cast("dict[Any, Any]", value) if isinstance(value, dict) else {}
    return {str(to): str(sha256) for to, sha256 in found.items()}


def note(folder: Path, to: str) -> str:
    """Note the SHA-256 of a fetched part, and return it."""
    sha256 = digest_at(folder, to, "sha256").removeprefix("sha256 ")
    beside = folder / f"{RECEIPTS}.{os.getpid()}"
    beside.write_text(json.dumps(read_receipts(folder) | {to: sha256}, indent=1) + "\n")
    beside.replace(folder / RECEIPTS)
    return sha256


def _look(folder: Path, to: str, expected: str) -> FileLook:
    if not (folder / to).exists():
        return FileLook(to, FileState.MISSING, expected)
    found = digest_at(folder, to, expected.split()[0])
    return FileLook(
        to, FileState.EQUAL if found == expected else FileState.DIFFERENT, expected, found
    )


def _against_receipt(folder: Path, to: str, receipts: Receipts, there: bool) -> FileLook:
    if not there:
        return FileLook(to, FileState.MISSING)
    found = digest_at(folder, to, "sha256")
    if to not in receipts:
        return FileLook(to, FileState.UNKNOWN, found=found)
    expected = f"sha256 {receipts[to]}"
    return FileLook(
        to, FileState.AS_FETCHED if found == expected else FileState.DIFFERENT, expected, found
    )
