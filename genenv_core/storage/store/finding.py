"""Looks for records that may be absent or damaged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from genenv_core.errors import IntegrityError, NotFound
from genenv_core.storage.store.protocol import Store

log = logging.getLogger("genenv.storage")

R = TypeVar("R")


def find_record(store: Store, path: str, read: Callable[[bytes], R], damaged: str = "") -> R | None:
    """Return the record at a path, None without one; `damaged` is as in `kept_record`."""
    return kept_record(store, path, read, damaged)[1]


def kept_record(
    store: Store, path: str, read: Callable[[bytes], R], damaged: str = ""
) -> tuple[bytes | None, R | None]:
    """Return the bytes at a path, to swap them, and the record that `read` makes of them.

    Both are None for a missing object. For a damaged record the function logs the warning `damaged`
    and returns the bytes alone; without a warning it raises IntegrityError.
    """
    try:
        data = store.read(path)
    except NotFound:
        return None, None
    try:
        return data, read(data)
    except IntegrityError as error:
        if not damaged:
            raise
        log.warning("%s: %s", damaged, error)
        return data, None
