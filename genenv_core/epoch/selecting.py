"""Stage `filter`: decides which tasks each update may use, with a reason for all others."""

from __future__ import annotations

from typing import Any

import polars as pl

from genenv_core.algorithm.reward import judged_p_hat, judged_skill
from genenv_core.algorithm.selection import Candidate, select_for_agent, select_for_env
from genenv_core.config.sections.curriculum import CurriculumConfig
from genenv_core.epoch.rows import Output, frame
from genenv_core.types import Policy, TaskSource
from schemas.enums import SelectionReason


def select(
    tasks: pl.DataFrame,
    task_scores: pl.DataFrame,
    traces: pl.DataFrame,
    *,
    epoch: int,
    curriculum: CurriculumConfig,
) -> Output:
    """Return `selections`: a decision about every task for each update.

    Args:
        tasks: the epoch's rows of `tasks`.
        task_scores: the epoch's groups, as the stage `score` rates them.
        traces: the epoch's attempts, also of groups with too few verdicts for a rating.
        epoch: number of the round.
        curriculum: level, alpha and band.
    """
    rows: list[dict[str, Any]] = []
    level = curriculum.level
    judged = task_scores.with_columns(judged=judged_p_hat(level), skill=judged_skill(level))
    for group in judged.iter_rows(named=True):
        candidate = Candidate(
            valid=True,
            generated=group["source"] == TaskSource.GENERATED.value,
            skill=group["skill"],
            zero_signal=group["zero_signal"],
        )
        shared = {
            "task_id": group["task_id"],
            "epoch": epoch,
            "group_id": group["group_id"],
            "p_hat": group["judged"],
            "distance": abs(group["skill"] - curriculum.alpha),
        }
        rows += _decisions(candidate, curriculum, shared)
    groups = dict(traces.select("task_id", "group_id").unique().iter_rows())
    for task in tasks.join(task_scores, on="task_id", how="anti").iter_rows(named=True):
        group = groups.get(task["task_id"])
        candidate = Candidate(
            valid=task["valid"],
            generated=task["source"] == TaskSource.GENERATED.value,
            attempted=group is not None,
        )
        shared = {"task_id": task["task_id"], "epoch": epoch, "group_id": group}
        rows += _decisions(candidate, curriculum, shared)
    facts = {
        f"kept_{policy.value}": sum(row["kept"] for row in rows if row["update"] == policy.value)
        for policy in Policy
    }
    return Output({"selections": frame("selections", rows)}, facts)


def _decisions(
    candidate: Candidate, curriculum: CurriculumConfig, shared: dict[str, Any]
) -> list[dict[str, Any]]:
    alpha, k_min = curriculum.alpha, curriculum.k_min
    reasons = {
        Policy.AGENT: select_for_agent(
            candidate, alpha=alpha, k_min=k_min, use_band=curriculum.filter_agent
        ),
        Policy.ENV: select_for_env(candidate, alpha=alpha, k_min=k_min),
    }
    return [
        {
            **shared,
            "update": policy.value,
            "kept": reason is SelectionReason.KEPT,
            "reason": reason.value,
        }
        for policy, reason in reasons.items()
    ]
