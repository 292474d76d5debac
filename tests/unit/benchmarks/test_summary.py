"""Metrics over verdicts and their intervals.

Invariants: a metric is a ratio of sums; an item counts once however often it was predicted; the
interval covers the truth about as often as it says; metrics over the same items share draws, and
those over others do not; no interval is a point; a composite needs all of its metrics.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta

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


@mutation(
    "items that no benchmark has do not count in an interval", SUMMARY,
    "HALF = 0.5", "HALF = 1e-9",
)  # fmt: skip
@mutation(
    "a draw with fewer points has the same denominator", SUMMARY,
    "/ (totals[:, 1] + none + all_of)", "/ totals[:, 1]",
    by="[15]",
)  # fmt: skip
@pytest.mark.parametrize("right", [0, 1, 15, 29, 30])
def test_the_interval_of_right_and_wrong_is_jeffreys(right: int) -> None:
    tally = Tally()
    for item in range(30):
        tally.add(str(item), {"m": (2.0 * (item < right), 2.0)})
    one = metrics(tally)["m"]
    assert one.value is not None and one.low is not None and one.high is not None
    low, high = beta.ppf([0.025, 0.975], right + 0.5, 30 - right + 0.5)
    assert one.low == pytest.approx(low if right else 0, abs=0.012)
    assert one.high == pytest.approx(high if right < 30 else 1, abs=0.012)
    assert one.low <= one.value <= one.high


@mutation(
    "items of one score have an interval of fewer items", SUMMARY,
    "items = rng.standard_gamma(count, size=DRAWS)", "items = rng.standard_gamma(1, size=DRAWS)",
)  # fmt: skip
@mutation(
    "an interval leaves out the value", SUMMARY,
    "min(low, value), max(high, value)", "low, high",
)  # fmt: skip
def test_items_of_one_score_have_an_interval_and_it_holds_the_value() -> None:
    widths = list[float]()
    for count in (10, 100):
        tally = Tally()
        for item in range(count):
            tally.add(str(item), {"m": (0, 1), "half": (1, 2)})
        none, half = metrics(tally).values()
        assert none.low == 0 and none.high is not None and half.low is not None
        assert half.low < 0.5
        widths.append(none.high)
    # 1 - (.025)^(1/n) without the prior; the rule of three says 3/n for 95 % on one side.
    assert 0.15 < widths[0] < 0.26 and 0.015 < widths[1] < 0.03


@pytest.mark.parametrize(("items", "truth"), [(30, 0.05), (120, 0.3)])
def test_intervals_cover_the_truth(items: int, truth: float) -> None:
    rng, inside, rounds = np.random.default_rng(0), 0, 60
    for number in range(rounds):
        tally = Tally()
        for item, right in enumerate(rng.random(items) < truth):
            tally.add(f"{number} {item}", {"m": (float(right), 1)})
        one = metrics(tally)["m"]
        assert one.low is not None and one.high is not None
        inside += one.low <= truth <= one.high
    assert inside / rounds >= 0.9


def test_categories_without_a_right_item_are_drawn_apart() -> None:
    tally = Tally()
    for item in range(20):
        tally.add(f"a {item}", {"a": (0, 1)})
        tally.add(f"b {item}", {"b": (0, 1)})
    found = metrics(tally, Composite("both", {"a": 1, "b": 1}))
    assert found["both"].high is not None and found["a"].high is not None
    assert found["both"].high < 0.9 * found["a"].high


@mutation(
    "metrics over other items share the draws", SUMMARY,
    "_drawn(rows[name], np.random.default_rng(_seed(self._given[name])))",
    "_drawn(rows[name], np.random.default_rng(0))",
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
    "len(items), value, _ends(draws)",
    "sum(len(given[name]) for name in shares), value, _ends(draws)",
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
