"""Picks a few of many rows, at even distances."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate


def evenly(total: int, count: int) -> list[int]:
    """Return `count` ascending indices below `total`; they repeat when there are fewer."""
    return [index * total // count for index in range(count)]


def spread(rows: Sequence[int], count: int) -> list[list[int]]:
    """Return which rows to take of each part, so that `count`, or all, are evenly spread.

    `rows` are the parts' numbers of rows. The result holds indices within each part.
    """
    total = sum(rows)
    wanted = evenly(total, min(count, total))
    return [
        [index - end + height for index in wanted if end - height <= index < end]
        for end, height in zip(accumulate(rows), rows, strict=True)
    ]
