"""Chooses example tasks and attempts of an early, a middle and a late epoch by a fixed rule.

It takes each epoch's new task nearest to alpha at which the agent both succeeded and failed, with
the first success and the first failure. Where the agent solved every task always or never, it takes
a success and a failure at different tasks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from genenv_core.domains.tool_calls import as_read
from genenv_core.play.transcript import Turn, turns
from genenv_core.storage.sql.catalog import query

LONGEST_TEXT = 4000
"""Characters of one text that the report shows."""


@dataclass(frozen=True, slots=True)
class ShownAttempt:
    """One attempt: its turns after the first prompt and its verdict."""

    trace_id: str
    success: bool
    reward: float
    failure: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class ExampleTask:
    """A task as the report shows it, with attempts at it."""

    task_id: str
    request: tuple[Turn, ...]
    generation: str
    expected: str
    difficulty: float | None
    successes: int
    n: int
    r_env: float | None
    attempts: tuple[ShownAttempt, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """The examples of one epoch."""

    epoch: int
    tasks: tuple[ExampleTask, ...]


def read_examples(con: duckdb.DuckDBPyConnection, own: str, epochs: Sequence[int]) -> list[Example]:
    """Return examples of the first, the middle and the last of these epochs of one run."""
    chosen = sorted({epochs[0], epochs[(len(epochs) - 1) // 2], epochs[-1]}) if epochs else []
    return [Example(epoch, _tasks(con, own, epoch)) for epoch in chosen]


def _tasks(con: duckdb.DuckDBPyConnection, own: str, epoch: int) -> tuple[ExampleTask, ...]:
    attempts = query(
        con,
        f"""
        WITH own_scores AS (
            SELECT s.group_id, s.trace_id, s.success, s.reward, s.failure, g.task_id, g.n,
                g.successes, g.r_env, g.successes > 0 AND g.successes < g.n AS mixed,
                abs(g.p_hat - c.alpha) AS distance
            FROM scores AS s
            JOIN task_scores AS g ON g.run_id = s.run_id AND g.group_id = s.group_id
            JOIN settings AS c ON c.run_id = s.run_id
            WHERE s.{own} AND s.epoch = {epoch} AND g.source <> 'base'
        ),
        firsts AS (
            SELECT * FROM own_scores
            QUALIFY row_number() OVER (PARTITION BY group_id, success ORDER BY trace_id) = 1
        )
        SELECT f.*, t.generation_text, t.program, t.ground_truth, t.difficulty, k.messages,
            dense_rank() OVER (ORDER BY mixed DESC, distance, group_id) AS place
        FROM firsts AS f
        JOIN tasks AS t ON t.{own} AND t.task_id = f.task_id
        JOIN trace_tokens AS k ON k.{own} AND k.trace_id = f.trace_id
        WHERE f.trace_id IN (
            SELECT unnest([
                first(trace_id ORDER BY mixed DESC, distance, group_id) FILTER (success),
                first(trace_id ORDER BY mixed DESC, distance, group_id) FILTER (NOT success)
            ]) FROM firsts
        )
        ORDER BY place, success DESC
        """,
    ).to_dicts()
    found: dict[str, list[dict[str, Any]]] = {}
    for row in attempts:
        found.setdefault(row["group_id"], []).append(row)
    return tuple(_task(rows) for rows in found.values())


def _task(rows: list[dict[str, Any]]) -> ExampleTask:
    first = rows[0]
    opening: tuple[Turn, ...] = ()
    attempts: list[ShownAttempt] = []
    for row in rows:
        spoken = tuple(_shortened(turn) for turn in turns(json.loads(row["messages"])))
        start = next((i for i, turn in enumerate(spoken) if turn.role == "assistant"), len(spoken))
        opening = spoken[:start]
        attempts.append(
            ShownAttempt(
                trace_id=row["trace_id"],
                success=row["success"],
                reward=row["reward"],
                failure=row["failure"],
                turns=spoken[start:],
            )
        )
    return ExampleTask(
        task_id=first["task_id"],
        request=opening,
        generation=_short(first["generation_text"] or first["program"] or ""),
        expected=_short(as_read(first["ground_truth"] or "")),
        difficulty=first["difficulty"],
        successes=first["successes"],
        n=first["n"],
        r_env=first["r_env"],
        attempts=tuple(attempts),
    )


def _shortened(turn: Turn) -> Turn:
    parts = tuple(_short(part) if isinstance(part, str) else part for part in turn.parts)
    return replace(turn, parts=parts)


def _short(text: str) -> str:
    left = len(text) - LONGEST_TEXT
    return text if left <= 0 else f"{text[:LONGEST_TEXT]} … ({left} more characters)"
