"""Certifies a task set for the stage `benchmark`: flaws, attempts, checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from genenv_core.epoch.rows import frame, to_tasks
from genenv_core.epoch.scoring import verdicts_of, with_messages
from genenv_core.epoch.trouble import endless_attempts
from genenv_core.evidence.attempted import (
    first_of_sets,
    flaw_frame,
    played_flaws,
    set_checks_frame,
    set_frame,
    tasks_of_sets,
    worth_of_attempts,
)
from genenv_core.types import Task
from tasks.stage import StageContext
from tasks.stage.shards import Shards

Judge = Callable[[pl.DataFrame, pl.DataFrame], dict[str, pl.DataFrame]]


def certify_attempted(
    context: StageContext[Any],
    attempted: Callable[[StageContext[Any], Sequence[Task], Judge], Shards],
) -> dict[str, Any]:
    """Play the tasks to find flaws, let the model attempt them, and write the checks of both.

    `attempted` makes the attempts. Raises DomainError for a fault of the domain, EngineError where
    no attempt has a verdict.
    """
    settings = context.measured
    domain = context.domain()
    drawn = tasks_of_sets(
        domain, settings.certify_base or 0, settings.certify_heldout or 0, context.seed
    )
    rows = set_frame(drawn, context.scope)
    tasks = to_tasks(rows)
    chosen = {id(one) for one in first_of_sets(drawn, settings.items)}
    wanted = [task for task, one in zip(tasks, drawn, strict=True) if id(one) in chosen]
    found = played_flaws(domain, drawn)
    by_id = {task.task_id: task for task in tasks}

    def judge(traces: pl.DataFrame, tokens: pl.DataFrame) -> dict[str, pl.DataFrame]:
        return {
            "scores": frame("scores", verdicts_of(with_messages(traces, tokens), by_id, domain))
        }

    shards = attempted(context, wanted, judge)
    traces = shards.rows("traces", shards.numbers)
    scores = shards.rows("scores", shards.numbers)
    errors = traces["error"]
    first_error = next((error for error in errors if error), "")
    ids = [task.task_id for task in tasks]
    checks = worth_of_attempts(found, ids, scores, first_error)
    shards.adopt()
    context.out.table("tasks", rows)
    context.out.table("set_flaws", flaw_frame(found, ids))
    context.out.table("certified_sets", set_checks_frame(found, checks))
    return {
        "certified": domain.name,
        "version": domain.version,
        "tasks": len(tasks),
        "attempted": len(wanted),
        "flawed": sum(not one.sound for one in found),
        "attempts": traces.height,
        "verdicts": scores.height,
        "broken": int((errors != "").sum()),
        "broken_first": first_error,
        "checks": {check.name: check.worth.value for check in checks},
    } | endless_attempts(traces["finish_reason"].to_list(), domain.name, context.config.rollout)
