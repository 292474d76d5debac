"""The common beginning of sequences of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from operator import eq
from typing import TypeVar

Tokens = TypeVar("Tokens", list[int], tuple[int, ...])


def common_tokens(sequences: Sequence[Tokens]) -> int:
    """Return how many first tokens are the same in all of one or more sequences."""
    # What the least and the greatest have in common, all have.
    least, greatest = min(sequences), max(sequences)
    return sum(1 for _ in takewhile(bool, map(eq, least, greatest)))
