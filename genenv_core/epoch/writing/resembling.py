"""Says which earlier task, and which test task, each new task resembles most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from genenv_core.domains.protocol import Domain
from genenv_core.epoch.rows import of_source
from genenv_core.epoch.writing.likeness import Nearest, nearest, nearest_vectors
from genenv_core.play.asked import embedded
from genenv_core.types import TaskSource

Row = Mapping[str, Any]


def resemblances(
    domain: Domain, rows: Sequence[Row], data: pl.DataFrame, recent: pl.DataFrame
) -> list[dict[str, Any]]:
    """Return the columns nearest_task_id, similarity, nearest_test_id and test_similarity.

    A text without a task gets an empty row.

    Args:
        domain: its embedding, if it has one, says how alike two requests are; else their programs
            do.
        rows: the epoch's rows of `tasks`, in order. A valid one is an earlier task for those behind
            it.
        data: the run's base and held-out tasks.
        recent: tasks of earlier epochs, oldest first.
    """
    new = [row for row in rows if row.get("program") is not None]
    joins = [bool(row["valid"]) for row in new]
    earlier = [*_tasks(of_source(data, TaskSource.BASE)), *_tasks(recent)]
    tests = _tasks(of_source(data, TaskSource.TEST))
    to_earlier, to_tests = _compared(domain, new, joins, earlier, tests)
    ids = [str(row["task_id"]) for row in (*earlier, *new)]
    test_ids = [str(row["task_id"]) for row in tests]
    found = {
        row["task_id"]: {
            **_columns("nearest_task_id", "similarity", one, ids),
            **_columns("nearest_test_id", "test_similarity", test, test_ids),
        }
        for row, one, test in zip(new, to_earlier, to_tests, strict=True)
    }
    return [found.get(row["task_id"], {}) for row in rows]


def _compared(
    domain: Domain,
    new: Sequence[Row],
    joins: Sequence[bool],
    earlier: Sequence[Row],
    tests: Sequence[Row],
) -> tuple[list[Nearest | None], list[Nearest | None]]:
    """Return the nearest of the earlier ones, `new` among them, and the nearest of the tests."""
    prompts = [str(row["prompt"]) for row in (*new, *earlier, *tests)]
    vectors = embedded(domain, prompts) if new else None
    if vectors is None:
        programs = [str(row["program"]) for row in (*new, *earlier, *tests)]
        parts = _split(programs, len(new), len(earlier))
        return nearest(parts[0], parts[1], joins), nearest(parts[0], parts[2])
    parts = _split(vectors, len(new), len(earlier))
    return nearest_vectors(parts[0], parts[1], joins), nearest_vectors(parts[0], parts[2])


def _split(values: Any, new: int, earlier: int) -> tuple[Any, Any, Any]:
    return values[:new], values[new : new + earlier], values[new + earlier :]


def _columns(
    ident: str, similarity: str, found: Nearest | None, ids: Sequence[str]
) -> dict[str, Any]:
    return {ident: ids[found.place], similarity: found.similarity} if found else {}


def _tasks(rows: pl.DataFrame) -> Sequence[Row]:
    """Return the valid tasks among rows, with the columns of the comparison."""
    return rows.filter(pl.col("valid")).select("task_id", "prompt", "program").to_dicts()
