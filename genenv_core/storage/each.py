"""The same for many objects of a store, as many at the same time as the store bears."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from genenv_core.storage.base import Store

T = TypeVar("T")
R = TypeVar("R")

BATCH = 1000
"""Calls that are planned ahead, so that a million objects need no million of them."""


def each(store: Store, call: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield what `call` returns for each item, in their order; what it raises is raised in turn.

    What is not read from here may have been called already, up to `BATCH` items ahead.
    """
    if store.at_once == 1:
        yield from map(call, items)
        return
    rest = iter(items)
    with ThreadPoolExecutor(store.at_once) as pool:
        while batch := list(islice(rest, BATCH)):
            yield from pool.map(call, batch)
