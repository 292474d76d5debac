"""How many examples and cases a test plays: few by default, all in `make test-all`."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Any

import pytest

USUAL = 25
ALL = "GENENV_EXAMPLES"
"""The environment variable that asks for every example, with the value `all`."""


def many(examples: int) -> int:
    """Return `examples` where all are asked for, else at most `USUAL`."""
    return examples if os.environ.get(ALL) == "all" else min(examples, USUAL)


def some(every: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Return the cases of a test, of which all but the quick ones are slow tests."""
    return [one if one in quick else pytest.param(one, marks=pytest.mark.slow) for one in every]
