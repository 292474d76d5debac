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
"""Calls that are planned ahead, so that a million objects need no million of them."""


@dataclass(frozen=True, slots=True)
class Stat:
    """What a store knows of an object without reading it.

    `sha256` is the digest that its writer left beside it, '' in a store that keeps none: then only
    reading the bytes shows.
    """

    bytes: int
    sha256: str = ""


class Store(Protocol):
    """Durable bytes under a root URI.

    The caller may rely on: `create` is atomic and exclusive (one winner among racing writers,
    also across machines); a path is either complete or absent; bytes are on disk when a call
    returns. Raises `NotFound`, `AlreadyExists` and `StorageError`, nothing else.

    `home` is this machine's own folder of the root: work in progress, laid-out checkpoints, logs,
    the databases of Prefect and MLflow. For a local directory it is the root itself.

    `at_once` is how many calls from threads at the same time pay off: 1 where an answer takes no
    time.
    """

    uri: str
    home: Path
    at_once: int

    def read(self, path: str) -> bytes:
        """Return the bytes at `path`; raises NotFound."""
        ...

    def size(self, path: str) -> int | None:
        """Return the size in bytes, or None when nothing is there."""
        ...

    def stats(self, paths: Sequence[str]) -> list[Stat | None]:
        """Return each object's size and digest, without reading it; None for a missing one."""
        ...

    def read_all(self, paths: Sequence[str]) -> list[bytes | None]:
        """Return the bytes at each path, None where nothing is."""
        ...

    def sha256(self, path: str) -> str:
        """Return the digest of the bytes that the store itself holds; raises NotFound."""
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

    def held(self, path: str) -> Path | None:
        """Return the local file of `local` if it is there already, None when it is not."""
        ...

    def files(self, paths: Sequence[str]) -> list[str]:
        """Return local files with the bytes of immutable objects, for DuckDB to open.

        One that is gone keeps its place under a name that does not exist.
        """
        ...

    def scratch(self) -> Path:
        """Return a new private folder below `home`, for work in progress."""
        ...

    def folder(self, path: str) -> Path:
        """Return the folder at `path` of `home`, made when missing, for work that outlives us."""
        ...

    def mark(self, path: str) -> str:
        """Return what changes whenever the object is written anew, '' when nothing is there."""
        ...

    def modified(self, path: str) -> float | None:
        """Return when the object was written or touched, by the store's clock; None without one."""
        ...

    def clock(self) -> float:
        """Return the time that the store would give an object now, in seconds."""
        ...

    def touch(self, path: str) -> bool:
        """Make an object as young as a new one; returns whether it is there."""
        ...

    def names(self, prefix: str) -> list[str]:
        """Return the names right below `prefix`, sorted; for people, history and gc."""
        ...

    def list(self, prefix: str) -> list[str]:
        """Return the paths below `prefix`, sorted; for people, history and gc, never for truth."""
        ...

    def delete(self, path: str) -> None:
        """Remove the object; a no-op when it is not there."""
        ...

    def delete_older(self, path: str, than: float) -> bool:
        """Remove an object last written or touched before `than`; returns whether it did.

        A touch by somebody else counts until the object is gone.
        """
        ...

    def snapshot(self) -> Store:
        """Return this store for one query: what it read may be kept for as long as that takes."""
        ...

    def collecting(self) -> AbstractContextManager[object]:
        """Be the one who collects garbage, while objects are looked at and removed."""
        ...

    def delete_folder(self, path: str) -> None:
        """Remove a path and all objects below it; a no-op when there are none."""
        ...

    def freed(self, path: str) -> int:
        """Return the bytes that `delete_folder` would free."""
        ...


def each(store: Store, call: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield what `call` returns for each item, in their order, with `at_once` calls at a time.

    An error of a call is raised in its place. Up to `BATCH` items ahead may have been called.
    """
    if store.at_once == 1:
        yield from map(call, items)
        return
    rest = iter(items)
    with ThreadPoolExecutor(store.at_once) as threads:
        while batch := list(islice(rest, BATCH)):
            yield from threads.map(call, batch)
