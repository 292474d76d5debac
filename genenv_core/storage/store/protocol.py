"""The Store protocol: one root, a local directory or an object-store prefix.

Paths are relative, `/`-separated, and made by `genenv_core.storage.paths` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")

BATCH = 1000
"""Most calls that `each` plans ahead: a million objects do not need a million planned calls."""


@dataclass(frozen=True, slots=True)
class Stat:
    """What a store knows of an object without reading it.

    `sha256` is the digest that its writer left beside it, or '' in a store without digests, where
    only reading the bytes gives it.
    """

    bytes: int
    sha256: str = ""


class Store(Protocol):
    """Durable bytes under a root URI.

    The caller may rely on: `create` is atomic and exclusive (one winner among racing writers,
    also across machines); a path is either complete or absent; bytes are on disk when a call
    returns; calls raise `NotFound`, `AlreadyExists` and `StorageError`, nothing else.

    `home` is this machine's own folder of the root: work in progress, laid-out checkpoints, logs,
    the databases of Prefect and MLflow. For a local directory it is the root itself.

    `at_once` says how many simultaneous calls pay off: 1 where an answer takes no time.
    """

    uri: str
    home: Path
    at_once: int

    def read(self, path: str) -> bytes:
        """Return the bytes at `path`; raises NotFound."""
        ...

    def size(self, path: str) -> int | None:
        """Return the size in bytes, or None for a missing object."""
        ...

    def stats(self, paths: Sequence[str]) -> list[Stat | None]:
        """Return each object's size and digest, without reading it; None for a missing object."""
        ...

    def read_all(self, paths: Sequence[str]) -> list[bytes | None]:
        """Return the bytes at each path, None for a missing object."""
        ...

    def sha256(self, path: str) -> str:
        """Return the digest of the bytes in the store itself; raises NotFound."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Write a new object; raises AlreadyExists where the path has one."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Write an object atomically, in place of any other one."""
        ...

    def swap(self, path: str, expected: bytes | None, data: bytes) -> bool:
        """Write an object only if its bytes still are `expected` (None: it does not exist).

        Returns whether it did; among racing callers with one expectation one wins. An object store
        reads bytes and ETag together, compares the bytes, and puts with If-Match on that ETag
        (If-None-Match: * for None); when it refuses the put, the call returns False.
        """
        ...

    def adopt(self, source: Path, path: str) -> None:
        """Take over a finished local file as an immutable object; a no-op when it exists."""
        ...

    def local(self, path: str) -> Path:
        """Return a local file with an immutable object's bytes; a store elsewhere caches it."""
        ...

    def held(self, path: str) -> Path | None:
        """Return the local file of `local` if it exists already, else None."""
        ...

    def files(self, paths: Sequence[str]) -> list[str]:
        """Return local files with the bytes of immutable objects, for DuckDB to open.

        A missing object keeps its place, with the name of a file that does not exist.
        """
        ...

    def scratch(self) -> Path:
        """Return a new private folder below `home`, for work in progress."""
        ...

    def folder(self, path: str) -> Path:
        """Return (and make) the folder at `path` of `home`, for work that outlives this process."""
        ...

    def mark(self, path: str) -> str:
        """Return a text that changes with every write of the object, '' for a missing one."""
        ...

    def modified(self, path: str) -> float | None:
        """Return when somebody last wrote or touched the object, by the store's clock, or None."""
        ...

    def clock(self) -> float:
        """Return the time that the store would give an object now, in seconds."""
        ...

    def touch(self, path: str) -> bool:
        """Make an object as young as a new one; return whether it exists."""
        ...

    def names(self, prefix: str) -> list[str]:
        """Return the names right below `prefix`, sorted; for people, history and gc."""
        ...

    def list(self, prefix: str) -> list[str]:
        """Return the paths below `prefix`, sorted; for people, history and gc, never for truth."""
        ...

    def delete(self, path: str) -> None:
        """Remove the object; a no-op for a missing one."""
        ...

    def delete_older(self, path: str, than: float) -> bool:
        """Remove an object that nobody wrote or touched since `than`; return whether it did.

        Somebody else's touch counts until the removal.
        """
        ...

    def snapshot(self) -> Store:
        """Return this store for one query, which may remember what it has read."""
        ...

    def collecting(self) -> AbstractContextManager[object]:
        """Be the only garbage collector inside the block, which judges and removes objects."""
        ...

    def delete_folder(self, path: str) -> None:
        """Remove a path and all objects below it; a no-op without any."""
        ...

    def freed(self, path: str) -> int:
        """Return the bytes that `delete_folder` would free."""
        ...


def each(store: Store, call: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield what `call` returns for each item, in order, with `at_once` calls at a time.

    Raises the error of a call in its place. Calls may be up to `BATCH` items ahead.
    """
    if store.at_once == 1:
        yield from map(call, items)
        return
    rest = iter(items)
    with ThreadPoolExecutor(store.at_once) as threads:
        while batch := list(islice(rest, BATCH)):
            yield from threads.map(call, batch)
