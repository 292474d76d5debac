"""How many items a measurement attempts when it is to end at a wanted precision.

Items come in random order. After each round the interval of the headline says whether to go on. A
stop at a fixed width leaves the interval's coverage what it says as the width goes to 0 (Chow and
Robbins 1965); docs/benchmarks/README.md has what it was over replays of stored verdicts.
"""

from __future__ import annotations

from genenv_core.benchmarks.summary import Metric

FEWEST = 30
"""Items of the first round. An interval over fewer depends on the prior of half an item."""


def next_round(headline: Metric | None, attempted: int, items: int, precision: float | None) -> int:
    """Return how many more items to attempt; 0 where the interval is narrow enough.

    A round takes as many as the present spread lets expect to be enough, and at most as many as
    were attempted before.

    Args:
        headline: what the attempted items come to; None before the first round.
        attempted: items so far.
        items: all of them.
        precision: half the width of the 95 % interval that is wanted, as a share of all points;
            None: attempt all items.
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
