"""Unpacks a zip of somebody else; no path leaves the folder, and sizes have bounds."""

from __future__ import annotations

import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from genenv_core.errors import DownloadError, described

MEMBERS = 200_000
"""Most members of an archive; that of ALFWorld's trajectories has some 20,000."""

CHUNK = 2**20


def unpack(
    archive: Path, into: Path, place: Callable[[str], str | None], unpacked: int
) -> list[str]:
    """Write the members that `place` gives a path below `into`; return these paths, sorted.

    Args:
        archive: the zip.
        into: an empty folder.
        place: returns where a member goes by its name, None to leave it out.
        unpacked: the most bytes that all written files may have together.

    Raises:
        DownloadError: the archive is broken or too large, or some member of it, even one that
            `place` leaves out, is a link or has a path that leaves the folder.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            return sorted(_written(opened, into, place, unpacked))
    except DownloadError as error:
        raise DownloadError(f"{archive.name}: {error}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DownloadError(f"{archive.name}: no whole zip: {described(error, 200)}") from error


def from_folders(names: Sequence[str], keep: str) -> Callable[[str], str | None]:
    """Return a `place` for files called `keep`: their path from a folder in `names` on."""

    def place(member: str) -> str | None:
        parts = PurePosixPath(member).parts
        start = next((at for at, part in enumerate(parts) if part in names), None)
        if start is None or parts[-1] != keep:
            return None
        return "/".join(parts[start:])

    return place


def checked(name: str) -> str:
    """Return a member's name; raises DownloadError unless it is a plain path downwards."""
    parts = name.removesuffix("/").split("/")
    if any(part in ("", ".", "..") for part in parts) or set(name) & set("\\:\0"):
        raise DownloadError(f"it has a member {name!r}, whose path may leave the folder: refused")
    return name


def _written(
    opened: zipfile.ZipFile, into: Path, place: Callable[[str], str | None], unpacked: int
) -> Iterator[str]:
    members = opened.infolist()
    if len(members) > MEMBERS:
        raise DownloadError(f"it has {len(members):,} members, more than {MEMBERS:,}: refused")
    for member in members:
        checked(member.filename)
        if stat.S_ISLNK(member.external_attr >> 16):
            raise DownloadError(f"it has a link {member.filename!r}: refused")
    left = unpacked
    for member in members:
        to = None if member.is_dir() else place(member.filename)
        if to is None:
            continue
        target = into / checked(to)
        target.parent.mkdir(parents=True, exist_ok=True)
        # "x": two members of one path would be one file.
        try:
            with opened.open(member) as source, target.open("xb") as sink:
                while chunk := source.read(CHUNK):
                    left -= len(chunk)
                    if left < 0:
                        raise DownloadError(f"it unpacks to more than {unpacked:,} bytes: refused")
                    sink.write(chunk)
        except FileExistsError as error:
            raise DownloadError(f"it has two members for {to}: refused") from error
        yield to
