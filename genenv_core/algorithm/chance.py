"""Computes p_hat, and the skill: the part of p_hat above the chance of a guess.

A guess is right with probability c, so an agent that knows nothing has p_hat 1/2 at a yes/no
question. The curriculum judges the skill instead,

    s = max(0, (p_hat - c) / (1 - c)),

the share that the agent knows if it guesses at all others: p = s + (1 - s) c. That is Abbott's
formula (W. S. Abbott, J. Econ. Entomol. 18, 1925) and the correction for guessing of tests (Lord
and Novick, Statistical Theories of Mental Test Scores, 1968, ch. 14). With c = 0 it is p_hat, bit
for bit. Without the limit at 0, s is unbiased, with variance p (1 - p) / (n (1 - c)^2), which is
1 / (1 - c)^2 times that of p_hat. With the limit, an agent that only guesses has s > 0 on average:
.19 with c = 1/2 and n = 4, .14 with n = 8. `joined` adds tasks up before the limit applies, so a
context or a batch has less of this bias. An agent that guesses with a favourite, such as yes three
times in four, is above c where the favourite is right, and below c elsewhere. Over tasks with both
answers this cancels out, for one task it does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from genenv_core.checks import finite


def p_hat(successes: int, n: int) -> float:
    """Return k/n; raises ValueError unless 0 <= k <= n and n >= 1."""
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"p_hat needs 0 <= successes <= n and n >= 1, got {successes} of {n}")
    return successes / n


def above_chance(rate: float, chance: float) -> float:
    """Return the skill behind a success rate, max(0, (rate - chance) / (1 - chance)).

    A rate below chance counts as skill 0. Raises ValueError unless 0 <= chance < 1.
    """
    finite([rate, chance], "above_chance(rate, chance)")
    if not 0 <= chance < 1:
        raise ValueError(f"the chance of a guess is from 0 to below 1, not {chance:g}")
    return max(0.0, (rate - chance) / (1 - chance))


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """Successes of one group, the context that its task was written for, the chance of a guess."""

    group_id: str
    context_id: str
    successes: int
    n: int
    chance: float = 0.0


def joined(items: Sequence[TaskCounts]) -> tuple[float, float]:
    """Return p_hat and skill of some tasks together; raises ValueError without an attempt.

    The skill is `above_chance` of p_hat and of the mean chance of an attempt, so a task weighs by
    n (1 - chance): where a guess is often right, an attempt says less.
    """
    n = sum(item.n for item in items)
    guessed = math.fsum(item.n * item.chance for item in items)
    together = p_hat(sum(item.successes for item in items), n)
    return together, above_chance(together, guessed / n)


def skill_of(groups: pl.DataFrame, tasks: pl.DataFrame) -> float | None:
    """Return the skill over rows of `task_scores`, by the chances of `tasks`; None for no row."""
    chances = tasks.select("task_id", "chance")
    rows = groups.join(chances, on="task_id", how="left", maintain_order="left")
    counts = [
        TaskCounts(row["group_id"], "", row["successes"], row["n"], row["chance"] or 0.0)
        for row in rows.iter_rows(named=True)
    ]
    return joined(counts)[1] if counts else None
