"""Rows of the tables from the core's records, and back."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from genenv_core.storage.canonical import canonical_json
from genenv_core.types import Task, TaskDraft, TaskSource
from schemas.registry import schema


def frame(table: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Return rows as a frame of a table; columns that a row leaves out are null."""
    return pl.DataFrame(rows, schema=schema(table), orient="row")


def draft_columns(draft: TaskDraft) -> dict[str, Any]:
    """Return the columns of `tasks` that hold a draft."""
    return {
        "family": draft.family,
        "difficulty": draft.difficulty,
        "fingerprint": draft.fingerprint,
        "program": draft.program,
        "prompt": draft.prompt,
        "ground_truth": draft.ground_truth,
        "spec": canonical_json(draft.spec).decode(),
    }


def data_task_row(task_id: str, source: TaskSource, index: int, draft: TaskDraft) -> dict[str, Any]:
    """Return the row of a task that pi_env did not write."""
    return {
        "task_id": task_id,
        "epoch": 0,
        "source": source.value,
        "generation_index": index,
        "valid": True,
        "rejection_detail": "",
        "env_prompt_tokens": 0,
        "generation_tokens": 0,
        **draft_columns(draft),
    }


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
            ),
            context_id=row["context_id"] or "",
        )
        for row in rows.filter(pl.col("valid")).iter_rows(named=True)
    ]
