"""How many items a measurement attempts that is to end at a precision.

Invariants: without a precision all items are one round; a round is never larger than all before
it; the last interval is as narrow as was asked for, or no item is left; it covers the truth about
as often as one over a number of items that was fixed before.
"""

from __future__ import annotations

import numpy as np
import pytest

from genenv_core.benchmarks.measuring.precision import FEWEST, next_round
from genenv_core.benchmarks.summary import Metric, Tally
from tests.mutations import mutation

PRECISION = "genenv_core/benchmarks/measuring/precision.py"


def between(low: float | None, high: float | None) -> Metric:
    return Metric("m", 40, None if low is None else (low + (high or 0)) / 2, low, high)


@mutation(
    "without a precision a first round is small", PRECISION,
    "min(left, FEWEST if precision else items)", "min(left, FEWEST)",
)  # fmt: skip
def test_without_a_precision_all_items_are_one_round() -> None:
    assert next_round(None, 0, 700, None) == 700
    assert next_round(None, 700, 700, None) == 0


@mutation(
    "a measurement goes on behind its precision", PRECISION,
    "    if half <= precision:\n        return 0\n", "",
)  # fmt: skip
@mutation(
    "the whole width is held to the precision", PRECISION,
    "half = (headline.high - headline.low) / 2", "half = headline.high - headline.low",
)  # fmt: skip
@mutation(
    "a round is larger than all before it", PRECISION,
    "return min(left, attempted, max(", "return min(left, max(",
)  # fmt: skip
@mutation(
    "the width falls with the number of items", PRECISION,
    "(half / precision) ** 2", "(half / precision)",
)  # fmt: skip
@mutation(
    "a headline without a value ends a measurement", PRECISION,
    "return min(left, attempted)  # a category", "return 0  # a category",
)  # fmt: skip
def test_a_round_takes_what_the_spread_lets_expect() -> None:
    assert next_round(None, 0, 700, 0.05) == FEWEST
    assert next_round(None, 0, 12, 0.05) == 12
    assert next_round(between(0.4, 0.5), 100, 700, 0.05) == 0
    assert next_round(between(0.4, 0.52), 100, 700, 0.05) == 44
    assert next_round(between(0.3, 0.7), 30, 700, 0.05) == 30
    assert next_round(between(0.4, 0.52), 100, 110, 0.05) == 10
    assert next_round(between(0.4, 0.52), 110, 110, 0.05) == 0
    assert next_round(between(None, None), 60, 700, 0.05) == 60
    assert next_round(between(0.4, 0.500001), 100, 700, 0.05) == 1


def measured(stored: np.ndarray, rng: np.random.Generator, precision: float) -> tuple[int, Metric]:
    """Return how many items were attempted, and what they came to."""
    order, tally, done = rng.choice(stored, size=2000), Tally(), 0
    headline: Metric | None = None
    while more := next_round(headline, done, len(order), precision):
        for place in range(done, done + more):
            tally.add(
                f"{rng.bit_generator.state['state']['state']} {place}", {"m": (order[place], 1)}
            )
        done += more
        (headline,) = tally.metrics()
    assert headline is not None
    return done, headline


@pytest.mark.parametrize("truth", [0.05, 0.5])
def test_the_interval_at_the_stop_covers_the_truth(truth: float) -> None:
    stored = np.array([1.0] * round(200 * truth) + [0.0] * round(200 * (1 - truth)))
    rng, inside, rounds = np.random.default_rng(7), 0, 40
    for _ in range(rounds):
        done, found = measured(stored, rng, 0.1)
        assert found.low is not None and found.high is not None
        assert (found.high - found.low) / 2 <= 0.1 and done < 160
        inside += found.low <= truth <= found.high
    assert inside / rounds >= 0.9
