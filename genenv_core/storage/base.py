"""The Store protocol: one root, a local directory or an object-store prefix.

Paths are relative, `/`-separated, and made by `genenv_core.storage.paths` alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Store(Protocol):
    """Durable bytes under a root URI.

    The caller may rely on: `create` is atomic and exclusive (one winner among racing writers,
    also across machines); a path is either complete or absent; bytes are on disk when a call
    returns. Raises `NotFound`, `AlreadyExists` and `StorageError`, nothing else.
    """

    uri: str

    def read(self, path: str) -> bytes:
        """Return the bytes at `path`; raises NotFound."""
        ...

    def size(self, path: str) -> int | None:
        """Return the size in bytes, or None when nothing is there."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Write a new object; raises AlreadyExists when the path is taken."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Write an object in place of whatever is there, atomically."""
        ...

    def swap(self, path: str, expected: bytes | None, data: bytes) -> bool:
        """Write an object only if its bytes still are `expected` (None: nothing is there).

        Returns whether it was written; among racing callers with one expectation one wins. An
        object store reads bytes and ETag together, compares the bytes, and puts with If-Match on
        that ETag (If-None-Match: * for None); a refused put is False.
        """
        ...

    def adopt(self, source: Path, path: str) -> None:
        """Take over a finished local file as an immutable object; a no-op when it exists."""
        ...

    def local(self, path: str) -> Path:
        """Return a local file with an immutable object's bytes (a store elsewhere caches it)."""
        ...

    def url(self, path: str) -> str:
        """Return what DuckDB and Arrow open to read the object."""
        ...

    def list(self, prefix: str) -> list[str]:
        """Return the paths below `prefix`, sorted; for people, history and gc, never for truth."""
        ...

    def delete(self, path: str) -> None:
        """Remove the object; a no-op when it is not there."""
        ...
