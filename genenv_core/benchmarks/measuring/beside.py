"""Compares two models on the same items of benchmarks: points, and the paired difference.

The interval of a model's points is that of its measurement (`benchmarks.summary`). That of the
difference is Student's t over the items' differences (`genenv_core.algorithm.paired`): both models
attempt the same items, so the difficulty of an item cancels out. Where items are right or wrong,
two more items count in the interval, one that only the first model gets right and one that only the
second does (Bonett and Price 2012). Without them it would be a point where no item differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from genenv_core.algorithm.paired import interval
from genenv_core.algorithm.stats import mean
from genenv_core.benchmarks.measuring.items import result_of, stored_lines
from genenv_core.benchmarks.summary import Metric
from genenv_core.benchmarks.training.benchmark_domain import BenchmarkDomain

POINTS = 100
HEADER = ("benchmark", "metric", "items")


@dataclass(frozen=True, slots=True)
class Beside:
    """A metric of two models, each in [0, 1], and the difference of the second to the first.

    `items` counts those with a verdict on both models. With fewer than two, the difference is None.
    """

    benchmark: str
    metric: str
    items: int
    before: Metric
    after: Metric
    difference: tuple[float, float, float] | None


def beside(domain: BenchmarkDomain[Any], before: pl.DataFrame, after: pl.DataFrame) -> list[Beside]:
    """Return each metric that has items in both, in the order of the benchmark.

    Args:
        domain: the benchmark.
        before: `benchmark_items` of the first model.
        after: those of the second one.
    """
    first, second = _by_metric(domain, before), _by_metric(domain, after)
    later = {one.name: one for one in result_of(domain, after).metrics}
    found = list[Beside]()
    for metric in result_of(domain, before).metrics:
        name = metric.name
        if metric.value is None or name not in first or name not in second:
            continue
        paired = [item for item in first[name] if item in second[name]]
        gaps = [second[name][item] - first[name][item] for item in paired]
        difference = paired_difference(gaps) if len(gaps) > 1 else None
        found.append(Beside(domain.name, name, len(gaps), metric, later[name], difference))
    return found


def paired_difference(gaps: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of at least two differences in [-1, 1], and the ends of its interval."""
    centre = mean(gaps)
    one_each = [-1.0, 1.0] if all(gap in (-1, 0, 1) for gap in gaps) else []
    _, low, high = interval([*gaps, *one_each])
    return centre, max(-1.0, min(low, centre)), min(1.0, max(high, centre))


def written(rows: Sequence[Beside], before: str, after: str) -> str:
    """Return the table as Markdown, in points of 100 with 95 % intervals."""
    lines = [[*HEADER, before, after, "difference"], ["---", "---", *["---:"] * 4]]
    for row in rows:
        gap = "" if row.difference is None else _triple(row.difference, sign="+")
        points = [_points(row.before), _points(row.after), gap]
        lines.append([row.benchmark, row.metric, str(row.items), *points])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _by_metric(
    domain: BenchmarkDomain[Any], verdicts: pl.DataFrame
) -> Mapping[str, dict[str, float]]:
    """Return an item's mean share of its possible points, by metric and item."""
    shares: dict[str, dict[str, list[float]]] = {}
    for line in stored_lines(verdicts, keyed=False):
        item, verdict = str(line.item), line.verdict
        if verdict.valid is None:
            continue
        for name, (got, possible) in domain.suite.measures(item, verdict).items():
            if possible:
                shares.setdefault(name, {}).setdefault(item, []).append(got / possible)
    return {name: {item: mean(of) for item, of in items.items()} for name, items in shares.items()}


def _points(metric: Metric) -> str:
    if metric.value is None or metric.low is None or metric.high is None:
        return ""
    return _triple((metric.value, metric.low, metric.high))


def _triple(of: tuple[float, float, float], sign: str = "") -> str:
    value, low, high = (POINTS * one for one in of)
    return f"{value:{sign}.1f} [{low:.1f}, {high:.1f}]"
