"""A bucket for callers that are not asynchronous; any number of threads may call it."""

# s3fs, fsspec and botocore have no stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import TypeVar, cast

from fsspec.asyn import sync

from genenv_core.storage.store.s3.multipart import Multipart
from genenv_core.storage.store.s3.requests import Head, together

T = TypeVar("T")


class Bucket(Multipart):
    """The objects of one bucket below a prefix; safe for threads, not for a fork."""

    # One object.

    def head(self, path: str) -> Head | None:
        """Return what the bucket knows of an object, None for a missing object."""
        return self._wait(self._head(path))

    def heads(self, paths: Sequence[str]) -> list[Head | None]:
        """Return what the bucket knows of each object, by simultaneous requests."""
        return self._wait(together([self._head(path) for path in paths]))

    def get(self, path: str) -> tuple[bytes, Head]:
        """Return an object's bytes and its head at that moment; raises NotFound."""
        return self._wait(self._get(path))

    def get_all(self, paths: Sequence[str]) -> list[tuple[bytes, Head] | None]:
        """Return `get` of each object, by simultaneous requests; None for a missing object."""
        return self._wait(together([self._get_or_none(path) for path in paths]))

    def put(self, path: str, data: bytes, before: Head | None, sha256: str = "") -> bool:
        """Write an object if its head still is `before`; return whether this call did."""
        return self._wait(self._put(path, data, before, sha256))

    def touch(self, path: str, head: Head) -> bool:
        """Copy an object onto itself to make it young; return whether its head still was `head`."""
        return self._wait(self._touch(path, head))

    def delete(self, paths: Sequence[str]) -> None:
        """Remove objects; ignore missing ones."""
        self._wait(together([self._delete(path) for path in paths]))

    def upload(self, path: str, source: Path, sha256: str) -> None:
        """Write a file as an object, unless the object exists."""
        self._wait(self._upload(path, source, sha256))

    def download(self, path: str, target: Path | None) -> str:
        """Download an object, into `target` if given; return its digest. Raises NotFound."""
        return self._wait(self._download(path, target))

    def ignored_condition(self) -> str:
        """Return the condition of a write that the store ignores, '' where it honours both."""
        path = f"probe/{uuid.uuid4().hex}"
        self.put(path, b"1", None)
        found = self.get(path)[1]
        stale = Head('"00000000000000000000000000000000"', 1, 0.0)
        ignored = ""
        if self.put(path, b"2", None):
            ignored = "If-None-Match"
        elif self.put(path, b"3", stale) or not self.put(path, b"4", found):
            ignored = "If-Match"
        self.delete([path])
        return ignored

    # Many objects.

    def list(self, prefix: str) -> dict[str, Head]:
        """Return the head of each object below `prefix`, by path, with what a listing says."""
        return self._wait(self._list(prefix, ""))[0]

    def names(self, prefix: str) -> Sequence[str]:
        """Return the names right below `prefix`, sorted."""
        objects, folders = self._wait(self._list(prefix, "/"))
        return sorted({path.rpartition("/")[2] for path in objects} | set(folders))

    def _wait(self, work: Awaitable[T]) -> T:
        async def bounded() -> T:
            return await work

        return cast(T, sync(self._files.loop, bounded))
