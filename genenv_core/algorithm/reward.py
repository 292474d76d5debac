"""p_hat and the alpha-curriculum reward R_env, at the level of a task, a context or the batch.

R_env(p_hat) = exp(-beta (p_hat - alpha)^2)   (GenEnv, arXiv 2512.19682, section "alpha-Curriculum
Reward"): 1 where the agent succeeds with probability alpha, falling off on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from genenv_core.checks import finite
from genenv_core.config.curriculum import Level


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
    """Successes of one group and the context that its task was conditioned on."""

    task_id: str
    context_id: str
    successes: int
    n: int


@dataclass(frozen=True, slots=True)
class Rated:
    """p_hat and R_env of one task at every level; `chosen_*` are those of the configured level."""

    task_id: str
    p_task: float
    p_group: float
    p_batch: float
    r_task: float
    r_group: float
    r_batch: float
    chosen_p: float
    chosen_r: float


def rate(counts: Sequence[TaskCounts], *, alpha: float, beta: float, level: Level) -> list[Rated]:
    """Return each task's p_hat and R_env, in order.

    The level `group` pools the tasks of one context, `batch` pools all of them; pooling adds
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
        r = {key: r_env(value, alpha=alpha, beta=beta) for key, value in p.items()}
        rated.append(
            Rated(
                task_id=item.task_id,
                p_task=p[Level.TASK],
                p_group=p[Level.GROUP],
                p_batch=p[Level.BATCH],
                r_task=r[Level.TASK],
                r_group=r[Level.GROUP],
                r_batch=r[Level.BATCH],
                chosen_p=p[level],
                chosen_r=r[level],
            )
        )
    return rated
