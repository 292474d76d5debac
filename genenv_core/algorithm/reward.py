"""p_hat and the alpha-curriculum reward R_env, at the level of a task, a context or the batch.

R_env(p_hat) = exp(-beta (p_hat - alpha)^2)   (GenEnv, arXiv 2512.19682, section "alpha-Curriculum
Reward"): 1 where the agent succeeds with probability alpha, lower on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from genenv_core.checks import finite
from genenv_core.config.sections.curriculum import Level


def p_hat(successes: int, n: int) -> float:
    """Return k/n; raises ValueError unless 0 <= k <= n and n >= 1."""
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"p_hat needs 0 <= successes <= n and n >= 1, got {successes} of {n}")
    return successes / n


def r_env(success_rate: float, *, alpha: float, beta: float) -> float:
    """Return exp(-beta (success_rate - alpha)^2), in (0, 1]."""
    finite([success_rate, alpha, beta], "r_env(success_rate, alpha, beta)")
    return math.exp(-beta * (success_rate - alpha) ** 2)


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """Successes of one group, and the context that its task was written for."""

    group_id: str
    context_id: str
    successes: int
    n: int


@dataclass(frozen=True, slots=True)
class Rated:
    """p_hat and R_env of one group at every level."""

    group_id: str
    p_hat: Mapping[Level, float]
    r_env: Mapping[Level, float]


def rate(counts: Sequence[TaskCounts], *, alpha: float, beta: float) -> list[Rated]:
    """Return each group's p_hat and R_env, in order.

    The level `group` joins the tasks of one context, `batch` joins all of them; joining adds
    successes and attempts, so tasks with more attempts weigh more.
    """
    by_context: dict[str, tuple[int, int]] = {}
    total = (0, 0)
    for item in counts:
        k, n = by_context.get(item.context_id, (0, 0))
        by_context[item.context_id] = (k + item.successes, n + item.n)
        total = (total[0] + item.successes, total[1] + item.n)
    rated: list[Rated] = []
    for item in counts:
        p = {
            Level.TASK: p_hat(item.successes, item.n),
            Level.GROUP: p_hat(*by_context[item.context_id]),
            Level.BATCH: p_hat(*total),
        }
        r = {level: r_env(value, alpha=alpha, beta=beta) for level, value in p.items()}
        rated.append(Rated(item.group_id, p, r))
    return rated


P_HAT_COLUMNS = {Level.TASK: "p_hat", Level.GROUP: "p_hat_group", Level.BATCH: "p_hat_batch"}
"""Columns of `task_scores` that hold p_hat at each level."""


def judged_p_hat(level: Level) -> pl.Expr:
    """Return the p_hat of a row of `task_scores` that the filter judges by.

    It is that of `level`, or the task's own where that is null, as for base tasks.
    """
    return pl.coalesce(P_HAT_COLUMNS[level], "p_hat")
