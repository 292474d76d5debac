"""Decides how many items a measurement attempts to reach a wanted precision.

Items come in random order. After each round the interval of the headline says whether to go on.
Stopping at a fixed width keeps the interval's nominal coverage as the width goes to 0 (Chow and
Robbins 1965); docs/benchmarks/README.md has the coverage over replays of stored verdicts.
"""

from __future__ import annotations

from genenv_core.benchmarks.summary import Metric

FEWEST = 30
"""Items of the first round. An interval over fewer depends on the prior of half an item."""


def next_round(headline: Metric | None, attempted: int, items: int, precision: float | None) -> int:
    """Return how many more items to attempt; 0 where the interval is narrow enough.

    A round takes as many items as should be enough at the present spread, and at most as many as
    all rounds before it.

    Args:
        headline: the metric over the attempted items; None before the first round.
        attempted: items so far.
        items: all of them.
        precision: half the wanted width of the 95 % interval, as a share of all points; None:
            attempt all items.
    """
    left = items - attempted
    if precision is None or headline is None:
        return min(left, FEWEST if precision else items)
    if headline.low is None or headline.high is None:
        return min(left, attempted)  # a category of the headline had no item yet
    half = (headline.high - headline.low) / 2
    if half <= precision:
        return 0
    expected = attempted * (half / precision) ** 2
    return min(left, attempted, max(1, round(expected) - attempted))
