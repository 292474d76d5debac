"""Stage `filter`: what each update may use, and for everything else the reason why not."""

from __future__ import annotations

from typing import Any

from genenv_core.algorithm.selection import Candidate, select_for_agent, select_for_env
from genenv_core.types import TaskSource
from schemas.enums import PolicyName, SelectionReason
from tasks.rows import frame
from tasks.score import judged_p_hat
from tasks.stage import Stage, StageContext, StageTask

STAGE = Stage(
    "filter",
    ("tasks.filter",),
    (
        "curriculum.alpha",
        "curriculum.level",
        "curriculum.k_min",
        "curriculum.filter_agent",
        "rollout.n",
    ),
)


def compute(context: StageContext) -> dict[str, Any]:
    """Decide about every task, once for each update."""
    curriculum, n = context.config.curriculum, context.config.rollout.n
    level, alpha, k_min = curriculum.level, curriculum.alpha, curriculum.k_min
    scores = context.frame("scores", "task_scores").with_columns(judged=judged_p_hat(level))
    rows: list[dict[str, Any]] = []
    for score in scores.iter_rows(named=True):
        candidate = Candidate(
            valid=True,
            complete=score["n"] == n,
            p_hat=score["judged"],
            zero_signal=score["zero_signal"],
        )
        # Only what pi_env wrote can teach pi_env.
        env = SelectionReason.NOT_IN_UPDATE
        if score["source"] == TaskSource.GENERATED.value:
            env = select_for_env(candidate, alpha=alpha, k_min=k_min)
        agent = select_for_agent(
            candidate, alpha=alpha, k_min=k_min, use_band=curriculum.filter_agent
        )
        shared = {
            "task_id": score["task_id"],
            "epoch": context.epoch,
            "group_id": score["group_id"],
            "p_hat": score["judged"],
            "distance": abs(score["judged"] - alpha),
        }
        rows += [_row(shared, PolicyName.AGENT, agent), _row(shared, PolicyName.ENV, env)]
    tasks = context.frame("tasks", "tasks")
    for task in tasks.iter_rows(named=True):
        if not task["valid"]:
            shared = {"task_id": task["task_id"], "epoch": context.epoch}
            rows += [_row(shared, policy, SelectionReason.INVALID_TASK) for policy in PolicyName]
    context.out.table("selections", frame("selections", rows))
    return {
        f"kept_{policy.value}": sum(r["kept"] for r in rows if r["update"] == policy.value)
        for policy in PolicyName
    }


def _row(shared: dict[str, Any], policy: PolicyName, reason: SelectionReason) -> dict[str, Any]:
    return {
        **shared,
        "update": policy.value,
        "kept": reason is SelectionReason.KEPT,
        "reason": reason.value,
    }


filter_ = StageTask(STAGE, compute)
