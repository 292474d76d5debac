"""Computes p_hat and the alpha-curriculum reward R_env of a task, a context or the batch.

R_env(s) = exp(-beta (s - alpha)^2)   (GenEnv, arXiv 2512.19682, section "alpha-Curriculum Reward"):
1 where the agent succeeds with probability alpha, lower on both sides. The paper has p_hat for s.

Departure from the paper: R_env judges the skill above the chance of a guess (`chance.py` beside
this file). Where no guess is right, the skill is p_hat.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from genenv_core.algorithm.chance import TaskCounts, joined
from genenv_core.checks import finite
from genenv_core.config.sections.curriculum import Level


def r_env(skill: float, *, alpha: float, beta: float) -> float:
    """Return exp(-beta (skill - alpha)^2), in (0, 1]."""
    finite([skill, alpha, beta], "r_env(skill, alpha, beta)")
    return math.exp(-beta * (skill - alpha) ** 2)


@dataclass(frozen=True, slots=True)
class Rated:
    """p_hat, the skill above chance and R_env of one group at every level."""

    group_id: str
    p_hat: Mapping[Level, float]
    skill: Mapping[Level, float]
    r_env: Mapping[Level, float]


def rate(counts: Sequence[TaskCounts], *, alpha: float, beta: float) -> list[Rated]:
    """Return each group's p_hat, skill and R_env, in order.

    The level `group` joins the tasks of one context, `batch` joins all of them. Joining adds up
    successes and attempts, so tasks with more attempts weigh more.
    """
    by_context: dict[str, list[TaskCounts]] = {}
    for item in counts:
        by_context.setdefault(item.context_id, []).append(item)
    contexts = {context: joined(items) for context, items in by_context.items()}
    batch = joined(counts) if counts else (0.0, 0.0)
    rated: list[Rated] = []
    for item in counts:
        levels = {
            Level.TASK: joined([item]),
            Level.GROUP: contexts[item.context_id],
            Level.BATCH: batch,
        }
        skill = {level: one[1] for level, one in levels.items()}
        r = {level: r_env(value, alpha=alpha, beta=beta) for level, value in skill.items()}
        rated.append(
            Rated(item.group_id, {level: one[0] for level, one in levels.items()}, skill, r)
        )
    return rated


P_HAT_COLUMNS = {Level.TASK: "p_hat", Level.GROUP: "p_hat_group", Level.BATCH: "p_hat_batch"}
"""Columns of `task_scores` that hold p_hat at each level."""

SKILL_COLUMNS = {Level.TASK: "skill", Level.GROUP: "skill_group", Level.BATCH: "skill_batch"}
"""Columns of `task_scores` that hold the skill at each level."""


def judged_p_hat(level: Level) -> pl.Expr:
    """Return the p_hat of a row of `task_scores` at the level that the filter judges by.

    It is that of `level`, or the task's own where that is null, as for base tasks.
    """
    return pl.coalesce(P_HAT_COLUMNS[level], "p_hat")


def judged_skill(level: Level) -> pl.Expr:
    """Return what the filter judges a row of `task_scores` by: `judged_p_hat`, above chance.

    In runs without the column `skill` the filter judges by p_hat.
    """
    return pl.coalesce(SKILL_COLUMNS[level], "skill", judged_p_hat(level))
