"""Carries out either update within its stage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from genenv_core.epoch.rows import UpdateRows, frame
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef
from genenv_core.training.requests import TrainerCheckpoints, UpdateRequest, lowered
from schemas.enums import UpdateAction
from tasks.policies.noted import show_steps, shown_steps
from tasks.policies.trainer import trainer
from tasks.stage import StageContext, log
from tasks.stage.inputs import In

UNITS = {"groups": "group_id", "rows": "row_id"}
"""Units in which an update counts its rows, with the column of `update_samples` that names one."""


def without(pool: ArtifactRef, otherwise: str) -> str:
    """Return why an update has no rows: the epoch of `pool` has no new task, or `otherwise`."""
    return otherwise if pool.facts["new_groups"] else "this epoch has no valid new task"


def update(
    context: StageContext[In],
    checkpoint: CheckpointRef,
    rows: UpdateRows | None,
    request: Callable[..., UpdateRequest],
    steps: Callable[[int], int],
    *,
    unit: Literal["groups", "rows"],
    without_rows: str,
    measure: Callable[[Path], dict[str, float]] = lambda _: {},
) -> dict[str, Any]:
    """Train the policy of a checkpoint, or skip it with a reason; write rows; return the facts.

    `rows` is None in an arm that does not train the policy. `request` makes the update's request
    from the fields that every update has. `steps` returns the planned optimizer steps on a number
    of units. `without_rows` is the reason when there are no rows. `measure` returns more metrics of
    the new checkpoint, from its folder.
    """
    name = checkpoint.name
    samples = frame("update_samples", []) if rows is None else rows.samples
    context.out.table("update_samples", samples)
    if rows is None or samples.is_empty():
        why = f"this arm does not train pi_{name}" if rows is None else without_rows
        return {"action": UpdateAction.SKIPPED, "note": why, "steps": 0, unit: 0, "metrics": {}}
    path = context.work / "rows.parquet"
    rows.training.write_parquet(path)
    asked = request(
        checkpoint=context.checkpoint(checkpoint),
        output=context.work / name,
        rows=path,
        gradient_checkpointing=context.execution.gradient_checkpointing == "full",
        seed=context.seed_for("train") % 2**31,
        threads=context.config.compute.threads,
        checkpoints=TrainerCheckpoints(
            folder=context.durable(), seconds=context.execution.checkpoint_seconds
        ),
        noted=context.work / "losses",
    )
    learned = rows.learned[UNITS[unit]].n_unique()
    assert asked.noted is not None
    with shown_steps(context, asked.noted, steps(learned)):
        result = trainer().update(asked)
    show_steps(context, asked.noted, None)
    if result.resumed_at:
        stage = context.stage.name
        log.info("stage=%s epoch=%d resumed_at=%d", stage, context.epoch, result.resumed_at)
    measured = measure(result.checkpoint)  # before a store takes the folder's files over
    context.out.checkpoint(name, result.checkpoint)
    return {
        "action": result.action,
        "note": result.note,
        "steps": result.steps,
        unit: learned,
        "metrics": result.metrics | measured,
        **lowered(result, asked.settings.micro_batch_rows),
    }
