"""Copies parts from one store to another, each compared with its digest."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath

from genenv_core.canonical import file_sha256
from genenv_core.errors import IntegrityError, StorageError
from genenv_core.storage.records.manifest import Part
from genenv_core.storage.store.protocol import Stat, Store

AT_ONCE = 8
"""Files in transit at the same time."""

Source = Callable[[Part], Store]
"""Returns the store that has a part."""


def copy_parts(source: Source, target: Store, parts: Sequence[Part]) -> Iterator[int]:
    """Copy parts, some at the same time; yield for each the copied bytes.

    It writes nothing to a source, not even a link: its files may be another team's. Raises as
    `copy_part`.
    """
    stats = target.stats([part.path for part in parts])

    def copy(part: Part, there: Stat | None) -> int:
        return copy_part(source, target, part, there)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        yield from threads.map(copy, parts, stats)


def copy_part(source: Source, target: Store, part: Part, there: Stat | None) -> int:
    """Copy a part unless it is `there` and whole; return the copied bytes.

    Raises NotFound when the source lacks it, IntegrityError when the source has other bytes, and
    StorageError when reading or writing fails.
    """
    if there:
        whole = there.bytes == part.bytes and part.sha256 == (
            there.sha256 or target.sha256(part.path)
        )
        if whole and target.touch(part.path):  # so that gc leaves it to us
            return 0
        if not whole:
            target.delete(part.path)
    store, folder = source(part), target.scratch()
    try:
        made = folder / PurePosixPath(part.path).name
        shutil.copyfile(store.local(part.path), made)
        if file_sha256(made) != part.sha256:
            raise IntegrityError(f"{store.uri}/{part.path} is altered")
        target.adopt(made, part.path)
    except OSError as error:
        raise StorageError(
            f"{store.uri}/{part.path} cannot be copied to {target.uri}: {error.strerror or error}"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return part.bytes
