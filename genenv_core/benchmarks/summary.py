"""Metrics over verdicts, each with a bootstrap interval over items.

A metric is the points got over the points that could be got, summed over items. An item with
several predictions counts once, with their mean. Items are drawn with replacement for the interval
(percentile bootstrap, Efron 1979). Metrics over the same items share their draws; those over other
items are drawn by themselves. Where every item has the same score, the interval is a point.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genenv_core.benchmarks.protocol import Composite, Ratio

DRAWS = 2000
LEVEL = 0.95
DRAWN_AT_ONCE = 250_000
"""Items, which bounds the memory."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric's value in [0, 1] with its 95 % interval, and over how many items it is.

    A composite with a metric that has no item has no value; `missing` names those.
    """

    name: str
    items: int
    value: float | None
    low: float | None
    high: float | None
    missing: Sequence[str] = ()


class Tally:
    """Adds up what verdicts give to metrics."""

    def __init__(self) -> None:
        self._given: dict[str, dict[str, list[Ratio]]] = defaultdict(lambda: defaultdict(list))

    def add(self, item: str, measures: Mapping[str, Ratio]) -> None:
        """Add what one prediction of an item gives to each metric; of nothing it gives nothing."""
        for name, ratio in measures.items():
            if ratio[1]:
                self._given[name][item].append(ratio)

    def metrics(self, composites: Sequence[Composite] = ()) -> list[Metric]:
        """Return every metric in the order of its first item, then the composites."""
        rows = {
            name: np.array([np.mean(ratios, axis=0) for ratios in items.values()])
            for name, items in self._given.items()
        }
        drawn = {name: _drawn(one, self._given[name]) for name, one in rows.items()}
        found = [_metric(name, len(one), _ratio(one), drawn[name]) for name, one in rows.items()]
        values: dict[str, Any] = {metric.name: metric.value for metric in found}
        return found + [_composite(one, self._given, values, drawn) for one in composites]


def _ratio(rows: NDArray[np.float64]) -> float:
    return float(rows[:, 0].sum() / rows[:, 1].sum())


def _seed(items: Iterable[str]) -> int:
    return int.from_bytes(hashlib.sha256("\n".join(items).encode()).digest()[:8])


def _drawn(rows: NDArray[np.float64], items: Iterable[str]) -> NDArray[np.float64]:
    """Return the metric of each draw, (DRAWS,); `rows` is (items, 2)."""
    count = len(rows)
    if (rows == rows[0]).all():
        return np.full(DRAWS, _ratio(rows))
    rng = np.random.default_rng(_seed(items))
    at_once = max(1, DRAWN_AT_ONCE // count)
    totals = np.concatenate(
        [
            rows[rng.integers(count, size=(min(at_once, DRAWS - done), count))].sum(axis=1)
            for done in range(0, DRAWS, at_once)
        ]
    )
    return totals[:, 0] / totals[:, 1]


def _metric(name: str, items: int, value: float, drawn: NDArray[np.float64]) -> Metric:
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Metric(name, items, value, float(low), float(high))


def _composite(
    composite: Composite,
    given: Mapping[str, Mapping[str, object]],
    values: Mapping[str, float],
    drawn: Mapping[str, NDArray[np.float64]],
) -> Metric:
    missing = [name for name in composite.weights if name not in given]
    if missing:
        return Metric(composite.name, 0, None, None, None, missing)
    total = sum(composite.weights.values())
    shares = {name: weight / total for name, weight in composite.weights.items()}
    value = sum(share * values[name] for name, share in shares.items())
    draws = sum((share * drawn[name] for name, share in shares.items()), np.zeros(DRAWS))
    items = {item for name in shares for item in given[name]}
    return _metric(composite.name, len(items), value, draws)
