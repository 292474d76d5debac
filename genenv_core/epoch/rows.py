"""Turns the core's records into rows of the tables, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from genenv_core.canonical import canonical_json
from genenv_core.ids import task_id
from genenv_core.types import Cause, Task, TaskDraft, TaskSource
from schemas.registry import schema

SeedFor = Callable[..., int]
"""Returns a seed that depends on the run's seed, the stage, the epoch and the arguments."""

Progress = Callable[[int, int, str], None]
"""Receives how much is done, of how much, in which unit."""


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a stage beside checkpoints: rows by table name, and small facts."""

    tables: Mapping[str, pl.DataFrame]
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class UpdateRows:
    """The rows of one update.

    `training` is for its trainer (see `GrpoRequest`, `RwrRequest`). `samples` are the same rows in
    the table `update_samples`, which links a checkpoint to them.
    """

    training: pl.DataFrame
    samples: pl.DataFrame

    @property
    def learned(self) -> pl.DataFrame:
        """Return the samples that the policy learns from, without those that only the KL uses."""
        return self.samples.filter(pl.col("weight").is_null() | (pl.col("weight") > 0))


def frame(table: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Return rows as a frame of a table; columns missing in a row are null."""
    return pl.DataFrame(rows, schema=schema(table), orient="row")


def shaped(table: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of a table among those of `rows`, in its order and types."""
    return rows.select([pl.col(name).cast(dtype) for name, dtype in schema(table).items()])


def draft_columns(draft: TaskDraft) -> dict[str, Any]:
    """Return the columns of `tasks` that hold a draft."""
    return asdict(draft) | {"spec": canonical_json(draft.spec).decode()}


def data_tasks(drafts: Mapping[TaskSource, Sequence[TaskDraft]], scope: str) -> pl.DataFrame:
    """Return the rows of `tasks` of a bootstrap, by source, with one numbering."""
    listed = [(source, draft) for source, of_it in drafts.items() for draft in of_it]
    rows = [
        {
            "task_id": task_id(0, scope, index),
            "epoch": 0,
            "source": source.value,
            "generation_index": index,
            "valid": True,
            "rejection_detail": "",
            "env_prompt_tokens": 0,
            "generation_tokens": 0,
            **draft_columns(draft),
        }
        for index, (source, draft) in enumerate(listed)
    ]
    return frame("tasks", rows)


def of_source(tasks: pl.DataFrame, *sources: TaskSource) -> pl.DataFrame:
    """Return the rows of `tasks` that come from one of `sources`."""
    return tasks.filter(pl.col("source").is_in([source.value for source in sources]))


def new_groups(task_scores: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `task_scores` whose tasks are the epoch's own, not base tasks."""
    return task_scores.filter(pl.col("source") != TaskSource.BASE.value)


def with_verdict(traces: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `traces` that say something about the agent: all but the lost ones."""
    judging = [cause.value for cause in Cause if cause.judges]
    return traces.filter(pl.col("cause").is_null() | pl.col("cause").is_in(judging))


def to_tasks(rows: pl.DataFrame) -> list[Task]:
    """Return the valid tasks among rows of `tasks`, in order."""
    return [
        Task(
            task_id=row["task_id"],
            source=TaskSource(row["source"]),
            draft=TaskDraft(
                prompt=row["prompt"],
                spec=json.loads(row["spec"]),
                ground_truth=row["ground_truth"],
                program=row["program"],
                family=row["family"],
                difficulty=row["difficulty"],
                fingerprint=row["fingerprint"],
                chance=row["chance"] or 0.0,
            ),
            context_id=row["context_id"] or "",
        )
        for row in rows.filter(pl.col("valid")).iter_rows(named=True)
    ]
