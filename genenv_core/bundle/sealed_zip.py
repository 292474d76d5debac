"""Packs named members into one file that shows any change: a ZIP archive, its comment the seal.

The seal is the SHA-256, in hex, of every byte before it. `unpack` checks it first, so it finds a
flipped, missing or added byte anywhere before it reads anything else. Members are stored, not
compressed: equal members give equal bytes with every version of zlib, and no archive can grow when
someone reads it. Any tool for ZIP archives opens the file. A seal says that the file is whole, not
who made it.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping
from io import BytesIO

from genenv_core.canonical import sha256
from genenv_core.errors import IntegrityError

SEAL = 64
"""Bytes of the seal."""
LARGEST = 512 * 2**20
"""Bytes of the largest file to read or write; a run of a thousand epochs has 60 MB."""

_TIME = (1980, 1, 1, 0, 0, 0)
_MODE = 0o100644 << 16
_BEGIN, _END, _END_BYTES = b"PK\x03\x04", b"PK\x05\x06", 22
_NAME = re.compile(r"(?!.*(^|/)\.{1,2}(/|$))[\w.+@ -]+(/[\w.+@ -]+)*", re.ASCII)
_LONGEST_NAME = 240


def pack(members: Mapping[str, bytes]) -> bytes:
    """Return the archive of members, by name; equal members give equal bytes.

    Raises IntegrityError for a forbidden name, and for more than `LARGEST` bytes.
    """
    _check_names(members)
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, _TIME)
            info.create_system, info.external_attr = 3, _MODE
            archive.writestr(info, members[name])
        archive.comment = b"0" * SEAL
    body = out.getvalue()[:-SEAL]
    _check_size(len(body) + SEAL)
    return body + sha256(body).encode()


def unpack(data: bytes) -> dict[str, bytes]:
    """Return the members of an archive by name; raises IntegrityError: what is wrong, and where.

    Every name stays below one folder, so a caller that writes the members there overwrites nothing
    outside of it.
    """
    _check_size(len(data))
    if data[-SEAL:] != sha256(data[:-SEAL]).encode():
        raise IntegrityError(_damage(data))
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            infos = archive.infolist()
            _check_infos(infos, len(data))
            return {info.filename: archive.read(info) for info in infos}
    except IntegrityError:
        raise
    except Exception as error:  # zipfile raises whatever a hostile archive makes it stumble over
        raise IntegrityError(f"it is no archive of genenv's: {error}") from error


def _check_size(size: int) -> None:
    if size > LARGEST:
        raise IntegrityError(f"it has {size:,} bytes, and bundles have {LARGEST:,} at most")


def _check_names(names: Iterable[str]) -> None:
    """Raise IntegrityError for a name that leads elsewhere, or two that would be one file."""
    seen: set[str] = set()
    folders: set[str] = set()
    for name in names:
        if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
            raise IntegrityError(f"member {name[:80]!a} has no name of a file below a folder")
        if name.casefold() in seen:
            raise IntegrityError(f"member {name!a} is in it twice")
        seen.add(name.casefold())
        steps = name.casefold().split("/")[:-1]
        folders |= {"/".join(steps[: count + 1]) for count in range(len(steps))}
    if both := sorted(seen & folders):
        raise IntegrityError(f"member {both[0]!a} is a file and a folder")


def _check_infos(infos: list[zipfile.ZipInfo], size: int) -> None:
    """Raise IntegrityError for entries that `pack` does not write."""
    _check_names(info.orig_filename for info in infos)
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise IntegrityError(f"member {info.filename!a} is compressed or encrypted")
    if sum(info.file_size for info in infos) > size:
        raise IntegrityError("its members overlap: they have more bytes than the file")


def _damage(data: bytes) -> str:
    """Return what is wrong with a file whose seal does not fit, and where if that shows."""
    if not data.startswith(_BEGIN):
        return "it does not begin like a bundle: it is another file, or its first bytes are altered"
    end = data.rfind(_END)
    if end < 0:
        return f"its end is missing or altered: it is cut off, at byte {len(data):,} or before"
    beyond = len(data) - (end + _END_BYTES + SEAL)
    if beyond < 0:
        return f"it is cut off: its last {-beyond:,} bytes are missing"
    if beyond > 0:
        return f"it has {beyond:,} bytes after its end"
    name = _altered_member(data)
    where = f"in its member {name}" if name else "in its table of contents or its seal"
    return f"its bytes do not fit its seal: it is altered {where}"


def _altered_member(data: bytes) -> str | None:
    """Return the first member whose checksum is wrong, or None."""
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            infos = archive.infolist()
            _check_infos(infos, len(data))
            for info in infos:
                try:
                    archive.read(info)
                except zipfile.BadZipFile:
                    return info.filename
    except Exception:  # the table of contents itself is altered
        return None
    return None
