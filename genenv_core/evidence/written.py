"""Reads tasks of a run and the attempts at them: those that pi_env wrote, base and test tasks.

A task of pi_env counts when the agent may attempt it. The guard keeps refused texts from the agent,
so their flaws have a count of their own. Only attempts with a verdict count, as in `task_scores`.
A run stores no certificate of its base tasks and test tasks: `genenv_core.evidence.attempted`
plays them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import duckdb
import polars as pl

from genenv_core.algorithm.success.shares import wilson
from genenv_core.canonical import digest
from genenv_core.evidence.worth import AttemptedTask, GroupCounts, WorthCheck, worth_of
from genenv_core.play.checking.set_flaws import AnyFlaw
from genenv_core.play.checking.sets import PROMPT, FlawCount
from genenv_core.play.checking.showing import EXAMPLES, FlawExample
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.duck import text
from genenv_core.types import Flaw, TaskChoice, TaskSource

Row = dict[str, Any]

_CONTENT = ("task_id", "prompt", "spec", "ground_truth")
LEFT = {TaskChoice.NOT_CHOSEN, TaskChoice.RESERVE}
"""Choices of tasks that an epoch leaves out; a refill may still attempt one of the reserve."""


@dataclass(frozen=True, slots=True)
class WrittenTasks:
    """Counts and checks of the tasks that pi_env wrote in some epochs of a run.

    `flaws` are counts as for a domain's own tasks, [] without certificates; the last one counts the
    tasks with any flaw. Of the `written` tasks that the agent may attempt, `attempted` have a
    verdict, `predicted` of them by their predicted success. The choice left out `not_chosen`, and
    all others have no verdict. `lost` counts attempts that an environment or an engine broke,
    `by_chance` the tasks where one and the same text succeeded and failed. `versions` are the first
    and last policy version of pi_agent. `refused` counts refused texts by flaw. `digest` is that of
    the tasks' ids and contents.
    """

    domain: str
    epochs: tuple[int, int]
    written: int
    attempted: int
    attempts: int
    predicted: int
    not_chosen: int
    lost: int
    by_chance: int
    versions: tuple[int, int] | None
    refused: dict[str, int]
    flaws: list[FlawCount]
    checks: list[WorthCheck]
    digest: str = ""

    @property
    def flawed(self) -> int:
        """Return how many tasks have a flaw."""
        return self.flaws[-1].having if self.flaws else 0


def read_written(
    con: duckdb.DuckDBPyConnection, run: str, epochs: tuple[int, int] | None = None
) -> WrittenTasks | None:
    """Return counts and checks of pi_env's tasks in a run; None where these epochs have no task.

    `epochs` are those that wrote the tasks, both ends included.
    """
    own = f"run_id = {text(run)}"
    within = f"t.epoch BETWEEN {epochs[0]} AND {epochs[1]}" if epochs else "true"

    def rows(sql: str) -> list[Row]:
        return query(con, sql.format(own=own, within=within)).to_dicts()

    tasks = rows(_TASKS)
    if not tasks:
        return None
    attempted = [row for row in tasks if row["n"]]
    (groups,), (traces,) = rows(_GROUPS), rows(_TRACES)
    having, checked = _of_floor(rows(_FLOOR))
    numbers = [row["epoch"] for row in tasks]
    return WrittenTasks(
        domain=rows("SELECT domain FROM runs WHERE {own}")[0]["domain"],
        epochs=(min(numbers), max(numbers)),
        written=len(tasks),
        attempted=len(attempted),
        attempts=sum(row["n"] for row in attempted),
        predicted=sum(row["choice"] == "predicted" for row in attempted),
        not_chosen=sum(row["choice"] in LEFT and not row["traces"] for row in tasks),
        lost=traces["lost"],
        by_chance=sum(bool(row["by_chance"]) for row in tasks),
        versions=None if traces["first"] is None else (traces["first"], traces["last"]),
        refused={row["flaw"]: row["texts"] for row in rows(_REFUSED)},
        flaws=_flaws(rows(_FLAWS)),
        checks=worth_of(
            [_attempted(row) for row in attempted],
            GroupCounts(groups["total"], groups["differing"], groups["reward_std"] or 0.0),
            (having, checked),
        ),
        digest=digest([[row[name] for name in _CONTENT] for row in tasks]),
    )


def read_examples(
    con: duckdb.DuckDBPyConnection, run: str, epochs: tuple[int, int] | None = None
) -> dict[AnyFlaw, list[FlawExample]]:
    """Return the first tasks of each flaw, without an attempt, which a run does not store.

    Arguments are those of `read_written`.
    """
    own = f"run_id = {text(run)}"
    within = f"t.epoch BETWEEN {epochs[0]} AND {epochs[1]}" if epochs else "true"
    rows = query(con, _EXAMPLES.format(own=own, within=within)).to_dicts()
    found: dict[AnyFlaw, list[FlawExample]] = {}
    for flaw in Flaw:
        having = [row for row in rows if row["flaw"] == flaw.value]
        if having:
            found[flaw] = [
                FlawExample(row["prompt"] or "", row["detail"] or "", fingerprint=row["task_id"])
                for row in having
            ]
    return found


@dataclass(frozen=True, slots=True)
class StoredSet:
    """The base tasks or the test tasks of a run, and its stored attempts at them.

    `tasks` are rows of the table. `scores` has a row for each attempt with a verdict: task_id,
    epoch, reward, success. `lost` counts attempts that an environment or an engine broke. The first
    and last epoch and policy version of the attempts are None without any. `older` are the first
    and last version whose attempts the set leaves out for a newer one's, None without any.
    """

    tasks: pl.DataFrame
    scores: pl.DataFrame
    lost: int
    epochs: tuple[int, int] | None
    versions: tuple[int, int] | None
    older: tuple[int, int] | None = None


def read_set(
    con: duckdb.DuckDBPyConnection,
    run: str,
    source: TaskSource,
    epochs: tuple[int, int] | None = None,
) -> StoredSet:
    """Return the base tasks or the test tasks of a run, with the attempts at them.

    Attempts at test tasks are the sampled ones. An evaluation that was taken over from an earlier
    epoch counts once, as that of the epoch that made it.

    Args:
        con: holds the views of the run.
        run: its name.
        source: which set.
        epochs: those whose attempts count, both ends included. None: the attempts of the newest
            version of pi_agent that has a verdict count alone.
    """
    own = f"run_id = {text(run)}"
    given = {"own": own, "source": text(source.value)}
    scores, lost = _OF_SET[source]
    within = f"x.epoch BETWEEN {epochs[0]} AND {epochs[1]}" if epochs else "true"
    rows = query(con, scores.format(**given, within=within))
    older = None
    if epochs is None and not rows.is_empty():
        newest = pl.col("policy_version") == rows["policy_version"].max()
        older = _ends(rows.filter(~newest), "policy_version")
        rows = rows.filter(newest)
        within = f"x.epoch >= {rows['epoch'].min()}"
    return StoredSet(
        query(con, _SET.format(**given)),
        rows.drop("policy_version"),
        query(con, lost.format(**given, within=within))["lost"][0],
        _ends(rows, "epoch"),
        _ends(rows, "policy_version"),
        older,
    )


def _ends(rows: pl.DataFrame, column: str) -> tuple[int, int] | None:
    """Return the least and the greatest number of a column; None where it has no row."""
    low, high = rows[column].min(), rows[column].max()
    return (low, high) if isinstance(low, int) and isinstance(high, int) else None


def _attempted(row: Row) -> AttemptedTask:
    solved = row["successes"] > 0 or bool(row["reachable"])
    return AttemptedTask(row["n"], row["successes"], solved, row["chance"])


def _of_floor(rows: list[Row]) -> tuple[int, int]:
    return sum(row["solved"] for row in rows), len(rows)


def _flaws(rows: list[Row]) -> list[FlawCount]:
    """Return the counts in the order of `Flaw`; the last one is for any flaw."""
    by_flaw = {row["flaw"]: row for row in rows}
    counts = [_flaw(flaw, by_flaw[flaw.value]) for flaw in Flaw if flaw.value in by_flaw]
    return [*counts, _flaw(None, by_flaw["any"])] if counts else []


def _flaw(flaw: Flaw | None, row: Row) -> FlawCount:
    having, checked = row["having"], row["checked"]
    detail = (row["detail"] or "") if flaw else ""
    prompt = (row["prompt"] or "")[:PROMPT] if flaw else ""
    return FlawCount(flaw, checked, having, *wilson(having, checked), detail, prompt)


_WRITTEN = "t.{own} AND {within} AND t.source = 'generated' AND t.valid"

_TASKS = f"""
SELECT t.task_id, t.epoch, t.choice, t.chance, c.reachable, c.by_chance, a.traces, t.prompt,
    t.spec, t.ground_truth,
    CAST(s.n AS BIGINT) AS n, CAST(s.successes AS BIGINT) AS successes
FROM tasks AS t
LEFT JOIN (
    SELECT task_id, sum(n) AS n, sum(successes) AS successes
    FROM task_scores WHERE {{own}} GROUP BY task_id
) AS s ON s.task_id = t.task_id
LEFT JOIN (
    SELECT task_id, count(*) AS traces FROM traces WHERE {{own}} GROUP BY task_id
) AS a ON a.task_id = t.task_id
LEFT JOIN certified AS c ON c.{{own}} AND c.task_id = t.task_id
WHERE {_WRITTEN}
ORDER BY t.task_id
"""

_GROUPS = f"""
SELECT count(*) AS total, count(*) FILTER (NOT g.zero_signal) AS differing,
    avg(g.reward_std) AS reward_std
FROM task_scores AS g JOIN tasks AS t ON t.task_id = g.task_id
WHERE g.{{own}} AND {_WRITTEN}
"""

_TRACES = f"""
SELECT min(a.policy_version) AS first, max(a.policy_version) AS last,
    count(*) FILTER (a.cause <> 'agent') AS lost
FROM traces AS a JOIN tasks AS t ON t.task_id = a.task_id
WHERE a.{{own}} AND {_WRITTEN}
"""

_FLOOR = f"""
SELECT c.task_id, NOT bool_and(c.passed) AS solved
FROM certificates AS c JOIN tasks AS t ON t.task_id = c.task_id
WHERE c.{{own}} AND {_WRITTEN} AND c.flaw IN ('accepts_trivial', 'accepts_canary')
GROUP BY c.task_id
"""

_FLAWS = f"""
WITH checked AS (
    SELECT c.task_id, c.flaw, c.passed, c.detail, t.prompt
    FROM certificates AS c JOIN tasks AS t ON t.task_id = c.task_id
    WHERE c.{{own}} AND {_WRITTEN}
)
SELECT flaw, count(*) AS checked, count(*) FILTER (NOT passed) AS having,
    arg_min(detail, task_id) FILTER (NOT passed) AS detail,
    arg_min(prompt, task_id) FILTER (NOT passed) AS prompt
FROM checked GROUP BY flaw
UNION ALL
SELECT 'any', count(DISTINCT task_id), count(DISTINCT task_id) FILTER (NOT passed), '', ''
FROM checked
"""

_EXAMPLES = f"""
SELECT c.flaw, c.detail, c.task_id, t.prompt
FROM certificates AS c JOIN tasks AS t ON t.task_id = c.task_id
WHERE c.{{own}} AND {_WRITTEN} AND NOT c.passed
QUALIFY row_number() OVER (PARTITION BY c.flaw ORDER BY c.task_id) <= {EXAMPLES}
ORDER BY c.flaw, c.task_id
"""

# A text that has several flaws counts for each of them.
_REFUSED = """
SELECT c.flaw, count(*) AS texts
FROM certificates AS c JOIN tasks AS t ON t.task_id = c.task_id
WHERE c.{own} AND t.{own} AND {within} AND t.source = 'generated' AND NOT t.valid
    AND NOT c.passed
GROUP BY c.flaw ORDER BY texts DESC, c.flaw
"""

_SET = "SELECT * FROM tasks WHERE {own} AND source = {source} AND valid ORDER BY task_id"

_BASE_SCORES = """
SELECT x.task_id, x.epoch, x.reward, x.success, a.policy_version
FROM scores AS x
JOIN traces AS a ON a.run_id = x.run_id AND a.trace_id = x.trace_id
JOIN tasks AS t ON t.run_id = x.run_id AND t.task_id = x.task_id
WHERE x.{own} AND {within} AND t.source = {source}
ORDER BY ALL
"""

_BASE_LOST = """
SELECT count(*) AS lost
FROM traces AS x JOIN tasks AS t ON t.run_id = x.run_id AND t.task_id = x.task_id
WHERE x.{own} AND {within} AND t.source = {source} AND x.cause <> 'agent'
"""

_TEST_SCORES = """
SELECT task_id, coalesce(measured_epoch, x.epoch) AS epoch, reward, success, policy_version
FROM evaluations AS x
WHERE {own} AND {within} AND split = {source} AND mode = 'sampled'
QUALIFY row_number() OVER (
    PARTITION BY task_id, sample_index, coalesce(measured_epoch, x.epoch) ORDER BY x.epoch
) = 1
ORDER BY ALL
"""

_TEST_LOST = """
SELECT count(*) AS lost FROM (
    SELECT DISTINCT x.task_id, x.sample_index, coalesce(measured, x.epoch)
    FROM evaluation_texts AS x LEFT JOIN (
        SELECT epoch, min(measured_epoch) AS measured
        FROM evaluations WHERE {own} AND split = {source} AND mode = 'sampled' GROUP BY epoch
    ) AS e ON e.epoch = x.epoch
    WHERE {own} AND {within} AND split = {source} AND mode = 'sampled' AND cause <> 'agent'
)
"""

_OF_SET = {
    TaskSource.BASE: (_BASE_SCORES, _BASE_LOST),
    TaskSource.TEST: (_TEST_SCORES, _TEST_LOST),
}
"""Queries for attempts with a verdict, and for the number of lost ones, by set."""
