"""Which logs a run has, and the attempts of each, a chunk at a time.

An attempt is a rollout, one at a benchmark's item, or one at a held-out task; the last are apart
in the tables, and have no trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from genenv_core.errors import ConfigError
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.duck import text
from genenv_core.types import HELDOUT, TaskSource

Row = dict[str, Any]

CHUNK = 1000
"""Attempts that are in memory together, with their transcripts."""


@dataclass(frozen=True, slots=True)
class LogSelection:
    """Which attempts to write; `epochs` includes both ends, empty `sources` mean all."""

    epochs: tuple[int, int] | None = None
    sources: tuple[TaskSource, ...] = ()
    min_reward: float | None = None

    @property
    def condition(self) -> str:
        """Return it as SQL over `_ATTEMPTS`."""
        conditions: list[str] = []
        if self.epochs:
            conditions.append(f"epoch BETWEEN {self.epochs[0]} AND {self.epochs[1]}")
        if self.sources:
            listed = ", ".join(text(source.value) for source in self.sources)
            conditions.append(f"source IN ({listed})")
        if self.min_reward is not None:
            conditions.append(f"reward >= {self.min_reward!r}")
        return " AND ".join(conditions) or "true"


@dataclass(frozen=True, slots=True)
class LogKind:
    """What one log is of: attempts of one policy version at tasks of one source in one epoch.

    `mode` is that of held-out attempts, `sampled` or `greedy`, else None.
    """

    epoch: int
    source: TaskSource
    mode: str | None
    policy_version: int
    tasks: int
    attempts: int
    repeats: int


class AttemptReader:
    """Reads the attempts of one run from an open connection over it."""

    def __init__(self, con: duckdb.DuckDBPyConnection, run: str, selection: LogSelection) -> None:
        """Read nothing yet."""
        self._con, self._own, self._where = con, f"run_id = {text(run)}", selection.condition

    def kinds(self) -> list[LogKind]:
        """Return what there are logs of, in the order of epochs."""
        found = query(
            self._con,
            f"""SELECT epoch, source, mode, policy_version, count(DISTINCT task_id) AS tasks,
                count(*) AS attempts, max(sample_index) + 1 AS repeats
            FROM ({_NUMBERS.format(own=self._own)}) WHERE {self._where}
            GROUP BY ALL ORDER BY ALL""",
        )
        rows = found.iter_rows(named=True)
        return [LogKind(source=TaskSource(row.pop("source")), **row) for row in rows]

    def rows(self, kind: LogKind) -> Iterator[Row]:
        """Yield the attempts of a log, in the order of tasks and repeats."""
        heldout = kind.source in HELDOUT
        mode = "IS NULL" if kind.mode is None else f"= {text(kind.mode)}"
        which = (
            f"epoch = {kind.epoch} AND source = {text(kind.source.value)} AND mode {mode} "
            f"AND policy_version = {kind.policy_version} AND {self._where}"
        )
        # One id a task: its attempts are read together. Ids are sorted and bound each chunk, so
        # that Parquet skips what lies outside.
        key = "task_id" if heldout else "group_id"
        groups = query(
            self._con,
            f"""SELECT {key} AS key, count(*) AS attempts
            FROM ({_NUMBERS.format(own=self._own)}) WHERE {which} GROUP BY ALL ORDER BY ALL""",
        )
        sql = _HELDOUT if heldout else _TRACES
        for first, last in _spans(groups["key"].to_list(), groups["attempts"].to_list()):
            # An id of a trace is its group's with the number of the sample after a dot.
            bounds = f"BETWEEN {text(first)} AND {text(f'{last}/')}"
            full = sql.format(own=self._own, bounds=bounds)
            found = query(
                self._con, f"SELECT * FROM ({full}) WHERE {which} ORDER BY {key}, sample_index"
            )
            yield from found.iter_rows(named=True)

    def began(self) -> dict[tuple[int, str], tuple[Any, Any]]:
        """Return when each epoch's stages began and ended, by epoch and stage, in UTC.

        The times are those of the attempt that computed it, else of the last one that reused it.
        """
        rows = query(
            self._con,
            f"""SELECT epoch, stage, started_at AT TIME ZONE 'UTC' AS started,
                (started_at + to_microseconds(CAST(1e6 * coalesce(seconds, 0) AS BIGINT)))
                    AT TIME ZONE 'UTC' AS ended
            FROM stage_runs WHERE {self._own} AND seconds IS NOT NULL
            ORDER BY state = 'computed', started_at""",
        )
        return {
            (row["epoch"], row["stage"]): (row["started"], row["ended"])
            for row in rows.iter_rows(named=True)
        }

    def checkpoints(self) -> dict[int, str]:
        """Return the digest of the agent's weights by policy version."""
        rows = query(
            self._con, f"SELECT epoch, digest FROM checkpoints WHERE {self._own} AND policy='agent'"
        )
        return dict(rows.iter_rows())


def sources_of(names: Sequence[str]) -> tuple[TaskSource, ...]:
    """Return task sources by name; raises ConfigError for another word."""
    known = [source.value for source in TaskSource]
    for name in names:
        if name not in known:
            raise ConfigError(f"--tasks {name!r}: expected one of {', '.join(known)}")
    return tuple(TaskSource(name) for name in names)


def _spans(keys: Sequence[str], attempts: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Yield the first and the last key of each chunk of about CHUNK attempts."""
    first, held = 0, 0
    for place, count in enumerate(attempts):
        held += count
        if held >= CHUNK or place == len(keys) - 1:
            yield keys[first], keys[place]
            first, held = place + 1, 0


# What selects attempts, without any transcript.
_NUMBERS = """
SELECT r.epoch, t.source, CAST(NULL AS VARCHAR) AS mode, r.policy_version, r.task_id, r.group_id,
    r.sample_index, r.reward
FROM judged_traces AS r
JOIN tasks AS t ON t.{own} AND t.task_id = r.task_id
WHERE r.{own}
UNION ALL BY NAME
SELECT epoch, split AS source, mode, policy_version, task_id, sample_index, reward
FROM evaluations WHERE {own}
"""

_TRACES = """
SELECT r.run_id, r.trace_id, r.group_id, r.task_id, r.epoch, r.sample_index, r.policy_version,
    CAST(NULL AS VARCHAR) AS mode, r.turns, r.prompt_tokens, r.response_tokens, r.finish_reason,
    r.error, k.messages, t.source, t.family, t.difficulty, t.prompt, t.ground_truth,
    r.success, r.reward, r.failure, r.benchmark, r.item, r.category, r.parts,
    g.n, g.p_hat, g.r_env, u.advantage, u.updates AS agent_updates,
    CAST(NULL AS VARCHAR) AS checkpoint
FROM judged_traces AS r
JOIN trace_tokens AS k ON k.{own} AND k.trace_id = r.trace_id AND k.trace_id {bounds}
JOIN tasks AS t ON t.{own} AND t.task_id = r.task_id
LEFT JOIN task_scores AS g ON g.{own} AND g.group_id = r.group_id
LEFT JOIN (FROM uses WHERE {own} AND policy = 'agent' AND row_id {bounds}) AS u
    ON u.row_id = r.trace_id
WHERE r.{own} AND r.trace_id {bounds}
"""

_HELDOUT = """
SELECT e.run_id, CAST(NULL AS VARCHAR) AS trace_id, CAST(NULL AS VARCHAR) AS group_id, e.task_id,
    e.epoch, e.sample_index, e.policy_version, e.mode, CAST(NULL AS BIGINT) AS turns,
    CAST(NULL AS BIGINT) AS prompt_tokens, e.response_tokens,
    CAST(NULL AS VARCHAR) AS finish_reason, '' AS error, x.messages, e.split AS source, t.family,
    t.difficulty, t.prompt, t.ground_truth, e.success, e.reward, e.failure,
    CAST(NULL AS VARCHAR) AS benchmark, CAST(NULL AS VARCHAR) AS item,
    CAST(NULL AS VARCHAR) AS category, CAST(NULL AS VARCHAR) AS parts, CAST(NULL AS BIGINT) AS n,
    CAST(NULL AS DOUBLE) AS p_hat, CAST(NULL AS DOUBLE) AS r_env, CAST(NULL AS DOUBLE) AS advantage,
    CAST(NULL AS BIGINT[]) AS agent_updates, e.agent_checkpoint AS checkpoint
FROM evaluations AS e
JOIN tasks AS t ON t.{own} AND t.task_id = e.task_id
LEFT JOIN evaluation_texts AS x ON x.{own} AND x.epoch = e.epoch AND x.split = e.split
    AND x.mode = e.mode AND x.task_id = e.task_id AND x.sample_index = e.sample_index
WHERE e.{own} AND e.task_id {bounds}
"""
