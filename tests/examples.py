"""How many examples and cases a test plays: few by default, all in `make test-all`."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

import pytest

One = TypeVar("One")
USUAL = 25
ALL = "GENENV_EXAMPLES"
"""The environment variable that asks for every example, with the value `all`."""


def many(examples: int, usual: int = USUAL) -> int:
    """Return `examples` where all are asked for, else at most the `usual` number."""
    return examples if _all() else min(examples, usual)


def spread(every: Sequence[One], number: int) -> list[One]:
    """Return `every` one where all are asked for, else so many from its whole length."""
    if _all() or number >= len(every):
        return list(every)
    return [every[index * len(every) // number] for index in range(number)]


def some(every: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Return the cases of a test, of which all but the quick ones are slow tests."""
    return [one if one in quick else pytest.param(one, marks=pytest.mark.slow) for one in every]


def _all() -> bool:
    return os.environ.get(ALL) == "all"
