"""Computes metrics over verdicts, each with an interval over items.

A metric is the points of all items over the most points that they could have. An item with several
predictions counts once, with their mean.

The interval is a Bayesian bootstrap (Rubin 1981): a draw gives each item a random weight. Half an
item without a point and half an item with all points count as well. Where an item is right or
wrong, the draws then have the distribution Beta(k + 1/2, n - k + 1/2), so the interval is Jeffreys'
(Brown, Cai and DasGupta 2001). It covers the truth also where hardly an item is right. Drawing
items with replacement does not: of 30 items at .05, it covers 77 times in 100. Metrics over the
same items share their draws; others have draws of their own.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genenv_core.benchmarks.protocol import Composite, Ratio

DRAWS = 2000
LEVEL = 0.95
HALF = 0.5
"""Weight of each of two more items, one without a point and one with all points."""
DRAWN_AT_ONCE = 250_000
"""Items in memory at once."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric's value in [0, 1] with its 95 % interval, and its number of items.

    A composite has no value where one of its metrics has no item; `missing` names those.
    """

    name: str
    items: int
    value: float | None
    low: float | None
    high: float | None
    missing: Sequence[str] = ()


class Tally:
    """Adds up the points that verdicts give to metrics."""

    def __init__(self) -> None:
        self._given: dict[str, dict[str, list[Ratio]]] = defaultdict(lambda: defaultdict(list))

    def add(self, item: str, measures: Mapping[str, Ratio]) -> None:
        """Add the points of one prediction of an item to each metric where it could have some."""
        for name, ratio in measures.items():
            if ratio[1]:
                self._given[name][item].append(ratio)

    def metrics(self, composites: Sequence[Composite] = ()) -> list[Metric]:
        """Return every metric in the order of its first item, then the composites."""
        rows = {
            name: np.array([np.mean(ratios, axis=0) for ratios in items.values()])
            for name, items in self._given.items()
        }

        @cache
        def drawn(name: str) -> NDArray[np.float64]:
            return _drawn(rows[name], np.random.default_rng(_seed(self._given[name])))

        found = [
            _metric(name, len(one), _ratio(one), _of_equal(len(one), _ratio(one)))
            if (one == one[0]).all()
            else _metric(name, len(one), _ratio(one), _ends(drawn(name)))
            for name, one in rows.items()
        ]
        values: dict[str, Any] = {metric.name: metric.value for metric in found}
        return found + [_composite(one, self._given, values, drawn) for one in composites]


def _ratio(rows: NDArray[np.float64]) -> float:
    return float(rows[:, 0].sum() / rows[:, 1].sum())


def _seed(items: Iterable[str]) -> int:
    return int.from_bytes(hashlib.sha256("\n".join(items).encode()).digest()[:8])


def _drawn(rows: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the metric of each draw, shape (DRAWS,); `rows` has shape (items, 2)."""
    count, possible = len(rows), rows[:, 1].mean()
    none, all_of = possible * rng.standard_gamma(HALF, size=(2, DRAWS))
    at_once = max(1, DRAWN_AT_ONCE // count)
    totals = np.concatenate(
        [
            np.einsum(
                "di,ip->dp", rng.standard_exponential((min(at_once, DRAWS - done), count)), rows
            )
            for done in range(0, DRAWS, at_once)
        ]
    )
    return (totals[:, 0] + all_of) / (totals[:, 1] + none + all_of)


@cache
def _of_equal(count: int, value: float) -> tuple[float, float]:
    """Return the ends of the interval of a metric whose items all have this value.

    The cache computes it once for each number of items, since a file may have a key for each line.
    """
    rng = np.random.default_rng(0)
    none, all_of = rng.standard_gamma(HALF, size=(2, DRAWS))
    items = rng.standard_gamma(count, size=DRAWS)
    return _ends((items * value + all_of) / (items + none + all_of))


def _ends(drawn: NDArray[np.float64]) -> tuple[float, float]:
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return float(low), float(high)


def _metric(name: str, items: int, value: float, ends: tuple[float, float]) -> Metric:
    low, high = ends
    return Metric(name, items, value, min(low, value), max(high, value))


def _composite(
    composite: Composite,
    given: Mapping[str, Mapping[str, object]],
    values: Mapping[str, float],
    drawn: Callable[[str], NDArray[np.float64]],
) -> Metric:
    missing = [name for name in composite.weights if name not in given]
    if missing:
        return Metric(composite.name, 0, None, None, None, missing)
    total = sum(composite.weights.values())
    shares = {name: weight / total for name, weight in composite.weights.items()}
    value = sum(share * values[name] for name, share in shares.items())
    draws = sum((share * drawn(name) for name, share in shares.items()), np.zeros(DRAWS))
    items = {item for name in shares for item in given[name]}
    return _metric(composite.name, len(items), value, _ends(draws))
