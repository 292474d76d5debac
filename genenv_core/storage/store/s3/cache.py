"""Keeps local copies of immutable objects by their digest, so a copy stays exact for ever.

A file appears whole or not at all, so any number of processes share a cache. A full cache drops the
least recently used file, but never one of the last minutes, because somebody may be about to open
it. So files in use can pass the bound.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from genenv_core.canonical import file_sha256
from genenv_core.errors import IntegrityError, StorageError
from genenv_core.storage.files import move_over, temporary

IN_USE_S = 900.0
"""How long after its last use a file stays."""

KINDS = ("parts", "records")
ABANDONED_S = 86_400.0


class Cache:
    """A folder of files named by their digest."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        """Use this folder; the first file makes it."""
        self.folder = folder
        self._limit = limit_bytes
        self._verified: set[str] = set()
        self._added: int | None = None

    def find(self, sha256: str, suffix: str, *, verified: bool = True) -> Path | None:
        """Return the file with this digest if it is here; it stays for some minutes from now.

        With `verified`, the first call of a process compares the bytes with the digest.
        """
        path = self._path(sha256, suffix)
        try:
            with self._locked(fcntl.LOCK_SH):
                os.utime(path)
        except OSError:  # it is not here, or is somebody else's
            if not path.is_file():
                return None
        if verified and sha256 not in self._verified:  # disks err
            if file_sha256(path) != sha256:
                path.unlink(missing_ok=True)
                return None
            self._verified.add(sha256)
        return path

    def fetch(self, sha256: str, suffix: str, download: Callable[[Path], str]) -> Path:
        """Return the file with this digest; `download` writes it and returns its digest.

        Raises IntegrityError when the downloaded bytes have another digest, StorageError when this
        process cannot write the cache.
        """
        found = self.find(sha256, suffix)
        if found:
            return found
        path = self._path(sha256, suffix)
        made = self.folder / "tmp" / uuid.uuid4().hex
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            made.parent.mkdir(exist_ok=True)
            came = download(made)
            if came != sha256:
                raise IntegrityError(f"it came with the digest {came[:12]}, not {sha256[:12]}")
            made.chmod(0o444)
            os.utime(made)  # a link is as old as its source
            size = made.stat().st_size
            os.replace(made, path)
            self._verified.add(sha256)
        except OSError as error:
            raise StorageError(
                f"the cache {path}: {error.strerror or error}: free some space, or set "
                "GENENV_CACHE_DIR to a folder that can be written"
            ) from error
        finally:
            made.unlink(missing_ok=True)
        self._bound(size)
        return path

    def recall(self, name: str) -> bytes | None:
        """Return the small record under a name, which is a digest; None without a record."""
        try:
            return self._record(name).read_bytes()
        except OSError:
            return None

    def keep(self, name: str, data: bytes) -> None:
        """Keep a small record, if the disk allows it."""
        path, scratch = self._record(name), self.folder / "tmp"
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            scratch.mkdir(exist_ok=True)
            move_over(temporary(scratch, data), path)

    def _record(self, name: str) -> Path:
        return self.folder / "records" / name[:2] / name

    def _path(self, sha256: str, suffix: str) -> Path:
        return self.folder / "parts" / sha256[:2] / f"{sha256}{suffix}"

    def _bound(self, added: int) -> None:
        """Remove the least recently used files, once a twentieth of the bound has come in."""
        if self._added is not None and self._added + added < self._limit / 20:
            self._added += added
            return
        self._added = 0
        now = time.time()
        with contextlib.suppress(OSError), self._locked(fcntl.LOCK_EX):
            for path, status in _found(self.folder / "tmp"):
                if now - status.st_mtime > ABANDONED_S:
                    path.unlink(missing_ok=True)
            found = [item for kind in KINDS for item in _found(self.folder / kind)]
            held = sum(status.st_size for _, status in found)
            for path, status in sorted(found, key=lambda item: item[1].st_mtime):
                if held <= self._limit or now - status.st_mtime < IN_USE_S:
                    return
                path.unlink(missing_ok=True)
                held -= status.st_size

    @contextlib.contextmanager
    def _locked(self, how: int) -> Generator[None]:
        """Hold the lock that keeps collection and use apart."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("ab") as lock:
            fcntl.flock(lock, how)
            yield


def _found(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the files below a folder; others may come and go meanwhile."""
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                yield path, path.stat()
