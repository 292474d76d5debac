"""Reads the results of a comparison's runs, epoch by epoch, through the views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from genenv_core.config.comparison import Budget, Measure, PlannedRun
from genenv_core.domains.registry import SEVERAL
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.duck import text

GAINS = """
SELECT s.run_id, s.epoch, s.rollouts, s.steps, s.tokens, g.measure, g.start, g.value, g.gain
FROM spent AS s JOIN test_gains AS g USING (run_id, epoch)
WHERE s.run_id IN ({runs}) ORDER BY s.run_id, s.epoch, g.measure
"""
GAINS_BY_DOMAIN = """
SELECT n.run_id, n.epoch, d.domain, n.measure, avg(n.value - o.value) AS gain, count(*) AS tasks
FROM test_results AS n
JOIN test_results AS o USING (run_id, task_id, measure)
JOIN task_domains AS d USING (run_id, task_id)
WHERE n.run_id IN ({runs}) AND o.epoch = 0
GROUP BY ALL ORDER BY n.run_id, n.epoch, d.domain, n.measure
"""
EPOCHS = """
SELECT e.run_id, e.epoch, e.p_hat, e.mean_response_tokens AS response_tokens,
    1 - e.share_zero_signal AS share_signal, e.kl_env, v.alpha_inside
FROM epochs AS e JOIN evidence AS v USING (run_id, epoch)
WHERE e.run_id IN ({runs}) ORDER BY e.run_id, e.epoch
"""
"""The statements behind a page's numbers; the page shows them with the runs filled in."""


@dataclass(frozen=True, slots=True)
class Point:
    """A run after an epoch: its spending so far, and its test results by measure.

    `gains` and `values` are means over the test tasks. Epoch 0 has spent 0 and gained 0.
    `by_domain` has the gains over the test tasks of each domain, in a run of several.
    """

    epoch: int
    spent: dict[Budget, int]
    gains: dict[Measure, float]
    values: dict[Measure, float]
    by_domain: dict[str, dict[Measure, float]] = field(
        default_factory=dict[str, dict[Measure, float]]
    )


@dataclass(frozen=True, slots=True)
class Played:
    """One run: its points from epoch 0 on, and rows of `EPOCHS` from epoch 1 on."""

    arm: str
    seed: int
    run_id: str
    points: list[Point]
    epochs: list[dict[str, Any]]

    def at(self, budget: Budget, limit: int) -> Point:
        """Return the last point that has spent no more than the limit."""
        return [point for point in self.points if point.spent[budget] <= limit][-1]


def plays_several(run: PlannedRun) -> bool:
    """Return whether a run has several domains."""
    return run.config.domain.name == SEVERAL


def statement(sql: str, runs: Sequence[PlannedRun]) -> str:
    """Return a statement with the runs filled in."""
    return sql.strip().replace("{runs}", ", ".join(text(run.run_id) for run in runs))


def read_results(con: duckdb.DuckDBPyConnection, runs: Sequence[PlannedRun]) -> list[Played]:
    """Return the runs that have at least one epoch, in their order, from a connection over them.

    Skips epochs beyond those of a run's configuration here: another command played them.
    """
    gains = query(con, statement(GAINS, runs)).to_dicts()
    epochs = query(con, statement(EPOCHS, runs)).to_dicts()
    parts = _by_domain(con, runs)
    found: list[Played] = []
    for run in runs:
        last = run.config.epochs
        own = [row for row in gains if row["run_id"] == run.run_id and row["epoch"] <= last]
        if own:
            points = [_start(own), *_points(own)]
            for point in points:
                point.by_domain.update(parts.get((run.run_id, point.epoch), {}))
            rows = [r for r in epochs if r["run_id"] == run.run_id and r["epoch"] <= last]
            found.append(Played(run.arm, run.seed, run.run_id, points, rows))
    return found


def _start(rows: Sequence[dict[str, Any]]) -> Point:
    values = {Measure(row["measure"]): float(row["start"]) for row in rows}
    return Point(0, dict.fromkeys(Budget, 0), dict.fromkeys(values, 0.0), values)


def _points(rows: Sequence[dict[str, Any]]) -> list[Point]:
    points: dict[int, Point] = {}
    for row in rows:
        spent = {budget: int(row[budget.value]) for budget in Budget}
        point = points.setdefault(row["epoch"], Point(row["epoch"], spent, {}, {}))
        point.gains[Measure(row["measure"])] = float(row["gain"])
        point.values[Measure(row["measure"])] = float(row["value"])
    return [points[epoch] for epoch in sorted(points)]


def _by_domain(
    con: duckdb.DuckDBPyConnection, runs: Sequence[PlannedRun]
) -> dict[tuple[str, int], dict[str, dict[Measure, float]]]:
    """Return the gains of the domains by run and epoch, for runs of several domains."""
    several = [run for run in runs if plays_several(run)]
    rows = query(con, statement(GAINS_BY_DOMAIN, several)).to_dicts() if several else []
    found: dict[tuple[str, int], dict[str, dict[Measure, float]]] = {}
    for row in rows:
        of_run = found.setdefault((row["run_id"], row["epoch"]), {})
        of_run.setdefault(row["domain"], {})[Measure(row["measure"])] = float(row["gain"])
    return found
