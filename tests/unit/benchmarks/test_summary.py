"""Metrics over verdicts and their intervals.

Invariants: a metric is a ratio of sums; an item counts once however often it was predicted; the
interval covers the truth about as often as it says; metrics over the same items share draws, and
those over others do not; a composite needs all of its metrics.
"""

from __future__ import annotations

import numpy as np
import pytest

from genenv_core.benchmarks.protocol import Composite
from genenv_core.benchmarks.summary import Metric, Tally
from tests.mutations import mutation

SUMMARY = "genenv_core/benchmarks/summary.py"


def metrics(tally: Tally, *composites: Composite) -> dict[str, Metric]:
    return {metric.name: metric for metric in tally.metrics(composites)}


def test_a_metric_is_a_ratio_of_sums_over_items() -> None:
    tally = Tally()
    tally.add("a", {"micro": (1, 4), "macro": (0, 1), "nothing": (0, 0)})
    tally.add("b", {"micro": (2, 2), "macro": (1, 1)})
    found = metrics(tally)
    assert list(found) == ["micro", "macro"]
    assert found["micro"].value == pytest.approx(0.5) and found["macro"].value == 0.5
    assert found["micro"].items == 2


@mutation(
    "an item that was predicted four times counts four times", SUMMARY,
    "np.array([np.mean(ratios, axis=0) for ratios in items.values()])",
    "np.array([ratio for ratios in items.values() for ratio in ratios])",
)  # fmt: skip
def test_an_item_counts_once_with_the_mean_of_its_predictions() -> None:
    tally = Tally()
    for score in (1, 1, 1, 0):
        tally.add("a", {"m": (score, 1)})
    tally.add("b", {"m": (0, 1)})
    assert metrics(tally)["m"].value == pytest.approx(0.375)


@pytest.mark.slow
def test_intervals_cover_the_truth() -> None:
    rng, inside = np.random.default_rng(0), 0
    for _ in range(200):
        tally = Tally()
        for item, right in enumerate(rng.random(120) < 0.3):
            tally.add(str(item), {"m": (float(right), 1)})
        one = metrics(tally)["m"]
        assert one.low is not None and one.high is not None
        inside += one.low <= 0.3 <= one.high
    assert 0.9 <= inside / 200 <= 0.985


@mutation(
    "metrics over other items share the draws", SUMMARY,
    "np.random.default_rng(_seed(items))", "np.random.default_rng(0)",
)  # fmt: skip
def test_metrics_over_the_same_items_share_their_draws() -> None:
    tally = Tally()
    for item in range(50):
        tally.add(str(item), {"m": (item % 2, 1), "same": (item % 2, 1)})
        tally.add(f"other {item}", {"other": (item % 2, 1)})
    found = metrics(
        tally, Composite("all", {"m": 1, "other": 1}), Composite("m only", {"m": 2, "same": 2})
    )
    m, same = found["m"], found["same"]
    assert (m.low, m.high) == (same.low, same.high)
    assert (found["m only"].low, found["m only"].high) == (m.low, m.high)
    assert m.low is not None and found["all"].low is not None and found["all"].low > m.low
    assert found == metrics(
        tally, Composite("all", {"m": 1, "other": 1}), Composite("m only", {"m": 2, "same": 2})
    )


@mutation(
    "a composite counts an item once for each of its metrics", SUMMARY,
    "len(items), value, draws", "sum(len(given[name]) for name in shares), value, draws",
)  # fmt: skip
def test_a_composite_is_a_weighted_mean_and_needs_all_of_its_metrics() -> None:
    tally = Tally()
    tally.add("a", {"x": (1, 1)})
    tally.add("b", {"x": (1, 1), "y": (0, 1)})
    found = metrics(
        tally, Composite("overall", {"x": 3, "y": 1}), Composite("more", {"x": 1, "z": 1})
    )
    assert found["overall"].value == pytest.approx(0.75) and found["overall"].items == 2
    assert found["more"].value is None and found["more"].missing == ["z"]
