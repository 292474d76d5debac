"""Stage `score`: R_agent of each trace, p_hat and R_env of each task, context and batch."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from genenv_core.algorithm.advantages import zero_signal
from genenv_core.algorithm.reward import Rated, TaskCounts, rate
from genenv_core.algorithm.stats import mean, sample_std
from genenv_core.checks import finite
from genenv_core.domains.base import Domain
from genenv_core.errors import DomainError
from genenv_core.types import Task, TaskSource, Verdict
from tasks.rows import frame, to_tasks
from tasks.stage import Stage, StageContext, StageTask

STAGE = Stage(
    "score",
    ("tasks.score",),
    ("domain", "curriculum.alpha", "curriculum.beta", "curriculum.level"),
)


def compute(context: StageContext) -> dict[str, Any]:
    """Judge every trace, then rate every task."""
    domain = context.domain()
    tasks = {
        task.task_id: task
        for name in ("tasks", "bootstrap")
        for task in to_tasks(context.frame(name, "tasks"))
    }
    traces = context.frame("traces", "traces").join(
        context.frame("traces", "trace_tokens").select("trace_id", "messages"),
        on="trace_id",
        maintain_order="left",
    )
    scores = [_judge(row, tasks[row["task_id"]], domain) for row in traces.iter_rows(named=True)]
    context.out.table("scores", frame("scores", scores))
    rows = _task_rows(context, tasks, scores)
    context.out.table("task_scores", frame("task_scores", rows))
    new = [row for row in rows if row["source"] != TaskSource.BASE.value]
    attempts = sum(row["n"] for row in new)
    return {
        "p_hat": sum(row["successes"] for row in new) / attempts if attempts else None,
        "zero_signal": mean([float(row["zero_signal"]) for row in new]) if new else None,
    }


def _judge(row: dict[str, Any], task: Task, domain: Domain) -> dict[str, Any]:
    verdict = (
        Verdict(0.0, False, "error")
        if row["error"]
        else domain.score(task.draft, json.loads(row["messages"]))
    )
    finite([verdict.reward], f"R_agent of trace {row['trace_id']}")
    if not 0 <= verdict.reward <= 1:
        raise DomainError(
            f"R_agent of trace {row['trace_id']} is {verdict.reward}, and must be within [0, 1]: "
            f"mend the score() of domain {domain.name}"
        )
    return {
        **{name: row[name] for name in ("trace_id", "epoch", "task_id", "group_id")},
        "reward": verdict.reward,
        "success": verdict.success,
        "failure": verdict.failure,
    }


def _task_rows(
    context: StageContext, tasks: dict[str, Task], scores: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the rows of `task_scores`; R_env rates pi_env's tasks, so base tasks have none."""
    curriculum = context.config.curriculum
    groups: dict[str, list[dict[str, Any]]] = {}
    for score in scores:
        groups.setdefault(score["group_id"], []).append(score)
    counts: dict[bool, list[TaskCounts]] = {False: [], True: []}
    for group, members in groups.items():
        task = tasks[members[0]["task_id"]]
        successes = sum(member["success"] for member in members)
        counts[task.source is TaskSource.BASE].append(
            TaskCounts(group, task.context_id, successes, len(members))
        )
    rated: dict[str, Rated] = {}
    for items in counts.values():
        for item in rate(
            items, alpha=curriculum.alpha, beta=curriculum.beta, level=curriculum.level
        ):
            rated[item.task_id] = item
    return [
        _task_row(context.epoch, group, members, tasks[members[0]["task_id"]], rated[group])
        for group, members in groups.items()
    ]


def _task_row(
    epoch: int, group: str, members: list[dict[str, Any]], task: Task, rated: Rated
) -> dict[str, Any]:
    rewards = [member["reward"] for member in members]
    is_base = task.source is TaskSource.BASE
    return {
        "group_id": group,
        "epoch": epoch,
        "task_id": task.task_id,
        "context_id": task.context_id or None,
        "source": task.source.value,
        "n": len(members),
        "successes": sum(member["success"] for member in members),
        "p_hat": rated.p_task,
        "p_hat_group": None if is_base else rated.p_group,
        "p_hat_batch": None if is_base else rated.p_batch,
        "r_env_task": None if is_base else rated.r_task,
        "r_env_group": None if is_base else rated.r_group,
        "r_env_batch": None if is_base else rated.r_batch,
        "r_env": None if is_base else rated.chosen_r,
        "reward_mean": mean(rewards),
        "reward_std": sample_std(rewards),
        "zero_signal": zero_signal(rewards),
    }


def judged_p_hat(level: str) -> pl.Expr:
    """Return the column of `task_scores` that the filter judges by; base tasks by their own."""
    column = {"task": "p_hat", "group": "p_hat_group", "batch": "p_hat_batch"}[level]
    return pl.coalesce(column, "p_hat")


score = StageTask(STAGE, compute)
