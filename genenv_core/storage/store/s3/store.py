"""The Store on a bucket: `s3://bucket/prefix`.

Commit protocol: a conditional put is to a bucket what an exclusive link is to a directory. Every
write names what it expects (no object, or one ETag); `requests` finds out the fate of a write whose
answer got lost. Listings are for people, history and gc, and decide nothing.

Immutable objects have names by content and carry their digest as metadata, so their copies in this
machine's cache, which all roots share, are exact. Files that only this machine uses (work in
progress, laid-out checkpoints, logs) lie in `home`.
"""

from __future__ import annotations

import contextlib
import re
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path, PurePosixPath

from genenv_core.canonical import file_sha256, sha256
from genenv_core.errors import (
    AlreadyExists,
    ConfigError,
    GenenvError,
    IntegrityError,
    NotFound,
    StorageError,
)
from genenv_core.storage import paths
from genenv_core.storage.files import link_or_copy
from genenv_core.storage.store.leases import Leases
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.store.places import cache_bytes, cache_folder, state_folder
from genenv_core.storage.store.protocol import Stat
from genenv_core.storage.store.s3.bucket import Bucket
from genenv_core.storage.store.s3.cache import Cache
from genenv_core.storage.store.s3.faults import endpoint
from genenv_core.storage.store.s3.requests import AT_ONCE, Head

HERE = ("tmp", "progress", "checkpoints")
"""Folders that each machine has for itself, below `home`."""

COLLECTOR = ("gc", "store")
"""The lease of the garbage collector."""

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_CONTENT = re.compile(r"[0-9a-f]{64}")
_RACES = 100

FETCHES = 8
"""Files to download at the same time."""


class S3Store:
    """A prefix of a bucket as a `Store`, safe for any number of processes and machines."""

    at_once = AT_ONCE

    def __init__(self, uri: str, *, writable: bool = True, cache: Cache | None = None) -> None:
        """Open a root; raises ConfigError, with a remedy, for an unusable one.

        With `writable` False the call does not test whether the store honours conditions.
        """
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        parts = [part for part in prefix.split("/") if part]
        if not uri.startswith("s3://") or not _NAME.fullmatch(bucket) or {".", ".."} & set(parts):
            # Do not repeat what may hold a password.
            given = "" if "@" in uri else f" {uri!r}"
            raise ConfigError(
                f"root{given}: write s3://BUCKET/PREFIX, the bucket's name with 3 to 63 small "
                "letters, digits, dots and hyphens; credentials come from the environment"
            )
        prefix = "/".join(parts)
        self.uri = f"s3://{bucket}/{prefix}".rstrip("/")
        self.home = state_folder(self.uri)
        try:
            self._here = LocalStore(self.home, folders=HERE, links=False)
        except StorageError as error:
            raise ConfigError(
                f"{error}: it is what this machine keeps of {self.uri}; set GENENV_STATE_DIR to a "
                "folder that can be written"
            ) from error
        self._cache = cache or Cache(cache_folder(), cache_bytes())
        self._bucket = Bucket(bucket, prefix)
        self._ahead: float | None = None
        self._writable = writable
        if writable and (ignored := self._bucket.ignored_condition()):
            raise ConfigError(
                f"root {self.uri}: the store at {endpoint()} ignores conditional writes "
                f"({ignored}), so that two processes would overwrite each other: use one "
                "that honours them, such as AWS S3, or a directory; see docs/s3.md"
            )

    def read(self, path: str) -> bytes:
        return self._bucket.get(path)[0]

    def read_all(self, paths: Sequence[str]) -> list[bytes | None]:
        """Return the bytes at each path, by simultaneous requests."""
        return [found and found[0] for found in self._bucket.get_all(paths)]

    def size(self, path: str) -> int | None:
        if _is_here(path):
            return self._here.size(path)
        head = self._bucket.head(path)
        return head.bytes if head else None

    def stats(self, paths: Sequence[str]) -> list[Stat | None]:
        """Return size and digest of each object, by simultaneous requests."""
        return [head and Stat(head.bytes, head.sha256) for head in self._bucket.heads(paths)]

    def sha256(self, path: str) -> str:
        """Return the digest of the bytes in the bucket, whatever the cache holds."""
        return self._here.sha256(path) if _is_here(path) else self._bucket.download(path, None)

    def create(self, path: str, data: bytes) -> None:
        if not self._bucket.put(path, data, None, sha256(data)):
            raise AlreadyExists(f"{self.uri}/{path} is already there")

    def replace(self, path: str, data: bytes) -> None:
        # This put has a condition too: a try with a lost answer must not overwrite a later write.
        for _ in range(_RACES):
            before = self._bucket.head(path)
            if self._bucket.put(path, data, before, sha256(data)) and (
                before is None or self._stays(path)
            ):
                return
        raise StorageError(f"{self.uri}/{path}: others write it all the time")

    def swap(self, path: str, expected: bytes | None, data: bytes) -> bool:
        if expected is None:
            return self._bucket.put(path, data, None, sha256(data))
        try:
            current, head = self._bucket.get(path)
        except NotFound:
            return False
        return current == expected and self._bucket.put(path, data, head, sha256(data))

    def adopt(self, source: Path, path: str) -> None:
        self._bucket.upload(path, source, _content(path)[0])
        with contextlib.suppress(GenenvError):  # only the next download is lost
            self._cache.fetch(*_content(path), lambda made: _copied(source, made))
        source.unlink(missing_ok=True)

    def local(self, path: str) -> Path:
        """Return a copy on this machine; raises IntegrityError when the object is damaged."""
        try:
            return self._fetch(path)
        except IntegrityError:  # the way here may be at fault
            try:
                return self._fetch(path)
            except IntegrityError as error:
                self._mark_bad(path)
                raise IntegrityError(f"{self.uri}/{path} is altered: {error}") from error

    def held(self, path: str) -> Path | None:
        return self._cache.find(*_content(path))

    def files(self, paths: Sequence[str]) -> list[str]:
        """Return copies on this machine; fetches `FETCHES` at the same time."""
        with ThreadPoolExecutor(FETCHES) as threads:
            return list(threads.map(self._file, paths))

    def snapshot(self) -> S3Store:
        """Return a store for one query, which knows the objects from listings."""
        return S3Snapshot(self)

    def mark(self, path: str) -> str:
        if _is_here(path):
            return self._here.mark(path)
        head = self._bucket.head(path)
        return head.etag if head else ""

    def modified(self, path: str) -> float | None:
        if _is_here(path):
            at = self._here.modified(path)
            return None if at is None else at + self._skew()
        head = self._bucket.head(path)
        return head.modified if head else None

    def clock(self) -> float:
        return time.time() + self._skew()

    def touch(self, path: str) -> bool:
        for _ in range(_RACES):
            head = self._bucket.head(path)
            if head is None:
                return False
            if self._bucket.touch(path, head):
                return self._stays(path)
        raise StorageError(f"{self.uri}/{path}: others write it all the time")

    def names(self, prefix: str) -> list[str]:
        return self._here.names(prefix) if _is_here(prefix) else list(self._bucket.names(prefix))

    def list(self, prefix: str) -> list[str]:
        return self._here.list(prefix) if _is_here(prefix) else sorted(self._bucket.list(prefix))

    def delete(self, path: str) -> None:
        self._bucket.delete([path])

    def delete_older(self, path: str, than: float) -> bool:
        """Remove an object that nobody wrote or touched since `than`, inside `collecting`."""
        at = self.modified(path)
        if at is None or at >= than:
            return False
        if _is_here(path):
            return self._here.delete_older(path, than - self._skew())
        self._bucket.delete([path])
        return True

    def collecting(self) -> contextlib.AbstractContextManager[object]:
        """Hold the lease of the garbage collector.

        A bucket cannot remove an object on the condition that it is old. So a writer that touches
        an old object looks for this lease afterwards. Either the collector sees a young object, or
        the writer sees the lease, waits for its end, and looks whether the object still exists.
        """
        return Leases(self).hold(*COLLECTOR, lambda: None)

    def delete_folder(self, path: str) -> None:
        if _is_here(path):
            self._here.delete_folder(path)
            return
        self._bucket.delete([path, *self._bucket.list(path)])

    def freed(self, path: str) -> int:
        if _is_here(path):
            return self._here.freed(path)
        return sum(head.bytes for head in self._bucket.list(path).values())

    def scratch(self) -> Path:
        return self._here.scratch()

    def folder(self, path: str) -> Path:
        return self._here.folder(path)

    def _file(self, path: str) -> str:
        found = self._cache.find(*_content(path), verified=False)  # as a file of a directory
        if found:
            return str(found)
        try:
            return str(self.local(path))
        except NotFound:
            return str(self.home / path)

    def _fetch(self, path: str) -> Path:
        return self._cache.fetch(*_content(path), lambda made: self._bucket.download(path, made))

    def _mark_bad(self, path: str) -> None:
        """Replace the wrong digest of a damaged object, so that everybody sees a miss."""
        if not self._writable:  # it may be another team's
            return
        with contextlib.suppress(StorageError):  # a reader without write access cannot
            head = self._bucket.head(path)
            if head:
                self._bucket.touch(path, replace(head, sha256="altered"))

    def _stays(self, path: str) -> bool:
        """Return whether an object that may have been old outlives a collection."""
        if self._bucket.head(paths.lease(*COLLECTOR)) is None:
            return True
        with self.collecting():
            return self._bucket.head(path) is not None

    def _skew(self) -> float:
        """Return by how many seconds the bucket's clock is ahead of this machine's."""
        if self._ahead is None:
            path = f"probe/{uuid.uuid4().hex}"
            self._bucket.put(path, b"", None)
            head = self._bucket.head(path)
            self._bucket.delete([path])
            self._ahead = (head.modified if head else time.time()) - time.time()
        return self._ahead


class S3Snapshot(S3Store):
    """The store of a root for one query: takes current records from this machine's cache.

    The ETag in a listing says which copy of a record is current, so one request serves a thousand
    records. This decides nothing: the store requests an object that no listing shows by its path,
    and an old listing shows whole pools of a moment before. No run reuses or computes a stage
    because of it.
    """

    def __init__(self, of: S3Store) -> None:
        """Look at the same root through the same connections."""
        self.uri, self.home = of.uri, of.home
        self._here, self._cache, self._bucket = of._here, of._cache, of._bucket
        self._ahead, self._writable = of._ahead, of._writable
        self._listed: dict[str, dict[str, Head]] = {}

    def snapshot(self) -> S3Store:
        return self

    def read(self, path: str) -> bytes:
        """Return the bytes at `path`, from the copy on this machine or from the bucket."""
        (data,) = self.read_all([path])
        if data is None:
            raise NotFound(f"{self.uri}/{path} does not exist")
        return data

    def read_all(self, paths: Sequence[str]) -> list[bytes | None]:
        found = {path: self._kept(path) for path in paths}
        missing = [path for path, data in found.items() if data is None]
        got_all = self._bucket.get_all(missing) if missing else []
        for path, got in zip(missing, got_all, strict=True):
            if got is not None:
                found[path] = got[0]
                self._cache.keep(self._name(path, got[1].etag), got[0])
        return [found[path] for path in paths]

    def mark(self, path: str) -> str:
        head = self._head(path)
        return head.etag if head else super().mark(path)

    def names(self, prefix: str) -> list[str]:
        if _group(f"{prefix}/x") is None:
            return super().names(prefix)
        start = f"{prefix}/"
        below = (path.removeprefix(start) for path in self._group(start) if path.startswith(start))
        return sorted({name.partition("/")[0] for name in below})

    def _kept(self, path: str) -> bytes | None:
        head = self._head(path)
        return self._cache.recall(self._name(path, head.etag)) if head else None

    def _head(self, path: str) -> Head | None:
        return self._group(path).get(path)

    def _group(self, path: str) -> dict[str, Head]:
        """Return what a listing says of the records that a query reads together with this one."""
        group = _group(path)
        if group is None:
            return {}
        if group not in self._listed:
            self._listed[group] = self._bucket.list(group)
            # Fetch all new records together, before callers ask for each of them.
            new = [p for p in self._listed[group] if self._kept(p) is None]
            self.read_all(new)
        return self._listed[group]

    def _name(self, path: str, etag: str) -> str:
        return sha256(f"{self.uri} {path} {etag}".encode())


def _is_here(path: str) -> bool:
    return path.partition("/")[0] in HERE


def _group(path: str) -> str | None:
    """Return the prefix to list for a path, None for one that queries read alone."""
    parts = path.split("/")
    if parts[0] == paths.runs() and len(parts) > 2:
        return paths.run(parts[1])
    return "stages" if parts[0] == "stages" and len(parts) > 2 else None


def _content(path: str) -> tuple[str, str]:
    """Return digest and suffix of a path with a name by content; raises StorageError."""
    name = PurePosixPath(path)
    if not _CONTENT.fullmatch(name.stem):
        raise StorageError(f"{path} is not named by its content, so it has no local copy")
    return name.stem, name.suffix


def _copied(source: Path, target: Path) -> str:
    link_or_copy(source, target)
    return file_sha256(target)
