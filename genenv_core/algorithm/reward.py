"""p_hat and the alpha-curriculum reward R_env, at the level of a task, a context or the batch.

R_env(s) = exp(-beta (s - alpha)^2)   (GenEnv, arXiv 2512.19682, section "alpha-Curriculum Reward"):
1 where the agent succeeds with probability alpha, lower on both sides. The paper has p_hat for s.

Departure from the paper: chance is not skill. Who guesses is right with probability c, so p_hat of
a yes/no question is 1/2 for an agent that knows nothing. R_env judges the skill instead,

    s = max(0, (p_hat - c) / (1 - c)),

the share that the agent knows if it guesses at all others: p = s + (1 - s) c. That is Abbott's
formula (W. S. Abbott, J. Econ. Entomol. 18, 1925) and the correction for guessing of tests (Lord
and Novick, Statistical Theories of Mental Test Scores, 1968, ch. 14). With c = 0 it is p_hat, bit
for bit. Without the limit at 0, s is unbiased, with variance p (1 - p) / (n (1 - c)^2), which is
1 / (1 - c)^2 times that of p_hat. With it, a task of which nothing is known has s > 0 on average:
.19 with c = 1/2 and n = 4, .14 with n = 8. Tasks are joined before the limit, so a context or a
batch has less of that. Who guesses with a favourite, such as yes three times in four, is above c
where that is right and below it elsewhere: over tasks with both answers this cancels out, for one
task it does not.
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


def above_chance(rate: float, chance: float) -> float:
    """Return the skill behind a success rate, max(0, (rate - chance) / (1 - chance)).

    A rate below chance is no skill, and a task is not harder for it: it counts as 0. Raises
    ValueError unless 0 <= chance < 1.
    """
    finite([rate, chance], "above_chance(rate, chance)")
    if not 0 <= chance < 1:
        raise ValueError(f"the chance of a guess is from 0 to below 1, not {chance:g}")
    return max(0.0, (rate - chance) / (1 - chance))


def r_env(skill: float, *, alpha: float, beta: float) -> float:
    """Return exp(-beta (skill - alpha)^2), in (0, 1]."""
    finite([skill, alpha, beta], "r_env(skill, alpha, beta)")
    return math.exp(-beta * (skill - alpha) ** 2)


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """Successes of one group, the context that its task was written for, the chance of a guess."""

    group_id: str
    context_id: str
    successes: int
    n: int
    chance: float = 0.0


@dataclass(frozen=True, slots=True)
class Rated:
    """p_hat, the skill above chance and R_env of one group at every level."""

    group_id: str
    p_hat: Mapping[Level, float]
    skill: Mapping[Level, float]
    r_env: Mapping[Level, float]


def rate(counts: Sequence[TaskCounts], *, alpha: float, beta: float) -> list[Rated]:
    """Return each group's p_hat, skill and R_env, in order.

    The level `group` joins the tasks of one context, `batch` joins all of them; joining adds
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


def joined(items: Sequence[TaskCounts]) -> tuple[float, float]:
    """Return p_hat and skill of some tasks together; raises ValueError without an attempt.

    The skill is `above_chance` of p_hat and of the mean chance of an attempt, so a task weighs by
    n (1 - chance): where a guess is often right, an attempt says less.
    """
    n = sum(item.n for item in items)
    guessed = math.fsum(item.n * item.chance for item in items)
    together = p_hat(sum(item.successes for item in items), n)
    return together, above_chance(together, guessed / n)


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

    Rows of runs without the column `skill` are judged by p_hat.
    """
    return pl.coalesce(SKILL_COLUMNS[level], "skill", judged_p_hat(level))


def skill_of(groups: pl.DataFrame, tasks: pl.DataFrame) -> float | None:
    """Return the skill over rows of `task_scores`, by the chances of `tasks`; None for no row."""
    chances = tasks.select("task_id", "chance")
    rows = groups.join(chances, on="task_id", how="left", maintain_order="left")
    counts = [
        TaskCounts(row["group_id"], "", row["successes"], row["n"], row["chance"] or 0.0)
        for row in rows.iter_rows(named=True)
    ]
    return joined(counts)[1] if counts else None
