"""The tasks that pi_env wrote in a run, each with its passport.

A passport says what is known about a task: how often which checkpoint solved it, what its
certificate says, where it comes from, and the digest of the task itself.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from genenv_core.algorithm.success.shares import wilson
from genenv_core.canonical import digest
from genenv_core.exchange.environments.playing import DRAFT
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.duck import text
from genenv_core.types import JsonObject

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TaskSelection:
    """Which valid tasks to give away, attempted or not.

    `epochs` and `p_hat` include both ends. Empty `families` or `domains` mean all of them. `sound`
    leaves out tasks that a certificate or an attempt speaks against.
    """

    epochs: tuple[int, int] | None = None
    p_hat: tuple[float, float] | None = None
    families: tuple[str, ...] = ()
    sound: bool = False
    domains: tuple[str, ...] = ()

    @property
    def condition(self) -> str:
        """Return it as SQL over `_TASKS`."""
        conditions: list[str] = []
        if self.epochs:
            conditions.append(f"epoch BETWEEN {self.epochs[0]} AND {self.epochs[1]}")
        if self.p_hat:
            conditions.append(f"p_hat BETWEEN {self.p_hat[0]!r} AND {self.p_hat[1]!r}")
        if self.families:
            conditions.append(f"family IN ({', '.join(map(text, self.families))})")
        if self.domains:
            listed = ", ".join(map(text, self.domains))
            conditions.append(f"split_part(family, '/', 1) IN ({listed})")
        if self.sound:
            conditions.append("sound")
        return " AND ".join(conditions) or "true"


def task_lines(
    con: duckdb.DuckDBPyConnection, run: str, selection: TaskSelection
) -> list[JsonObject]:
    """Return the selected tasks of a run, first written first: each with its passport.

    Of tasks that count as duplicates, it returns the first one, with the attempts at all of them.
    """
    own = f"run_id = {text(run)}"
    rows = list(query(con, _TASKS.format(own=own, where=selection.condition)).iter_rows(named=True))
    measured: dict[str, list[Row]] = defaultdict(list)
    for row in query(con, _MEASURED.format(own=own)).iter_rows(named=True):
        measured[row.pop("fingerprint")].append(row)
    looked: dict[str, list[Row]] = defaultdict(list)
    for row in query(con, _CHECKS.format(own=own)).iter_rows(named=True):
        looked[row.pop("task_id")].append(row)
    return [_line(run, row, measured[row["fingerprint"]], looked[row["task_id"]]) for row in rows]


def _line(run: str, row: Row, measured: Sequence[Row], checks: Sequence[Row]) -> JsonObject:
    task = {name: row[name] for name in DRAFT} | {"spec": json.loads(row["spec"])}
    lineage = ("epoch", "generation_id", "context_id", "base_task_id", "env_policy_version")
    passport: JsonObject = {
        "digest": digest(task),
        "measured": [_measurement(one) for one in measured],
        "certificate": {
            "checks": {one["flaw"]: one["passed"] for one in checks},
            **{name: row[name] for name in ("reachable", "separating", "by_chance", "sound")},
        },
        "lineage": {"run_id": run, **{name: row[name] for name in lineage}},
    }
    return {"task_id": row["task_id"], **task, "passport": passport}


def _measurement(row: Row) -> JsonObject:
    low, high = wilson(row["successes"], row["n"])
    return {**row, "p_hat": row["successes"] / row["n"], "wilson_low": low, "wilson_high": high}


_TASKS = """
SELECT * FROM (
    SELECT t.task_id, t.epoch, t.generation_id, t.context_id, t.base_task_id,
        t.env_policy_version, t.family, t.difficulty, coalesce(t.chance, 0) AS chance,
        t.fingerprint, t.program, t.prompt, t.ground_truth, t.spec,
        c.reachable, c.separating, c.by_chance, c.sound, s.p_hat
    FROM tasks AS t
    LEFT JOIN certified AS c ON c.{own} AND c.task_id = t.task_id
    LEFT JOIN (
        SELECT task_id, sum(successes) / sum(n) AS p_hat
        FROM task_scores WHERE {own} GROUP BY task_id
    ) AS s ON s.task_id = t.task_id
    WHERE t.{own} AND t.source = 'generated' AND t.valid
)
WHERE {where}
QUALIFY row_number() OVER (PARTITION BY fingerprint ORDER BY task_id) = 1
ORDER BY task_id
"""

# Which weights a version has: those that its epoch published, else what was published before.
_MEASURED = """
SELECT t.fingerprint, g.epoch, a.policy_version, c.digest AS weights, g.n, g.successes
FROM task_scores AS g
JOIN tasks AS t ON t.{own} AND t.task_id = g.task_id
JOIN (
    SELECT group_id, min(policy_version) AS policy_version
    FROM traces WHERE {own} GROUP BY group_id
) AS a ON a.group_id = g.group_id
ASOF LEFT JOIN (
    SELECT epoch, digest FROM checkpoints WHERE {own} AND policy = 'agent' AND published
) AS c ON c.epoch <= a.policy_version
WHERE g.{own} AND g.source = 'generated'
ORDER BY g.group_id
"""

_CHECKS = """
SELECT task_id, flaw, passed FROM certificates WHERE {own} ORDER BY task_id, flaw
"""
