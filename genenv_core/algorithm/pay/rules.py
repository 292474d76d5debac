"""Pays for each attempted task by the chosen rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from genenv_core.algorithm.pay.learnability import learnability
from genenv_core.algorithm.success.belief import Belief
from genenv_core.algorithm.success.signal import signal
from genenv_core.config.sections.updates import PayRule


@dataclass(frozen=True, slots=True)
class PaidTask:
    """A task of pi_env after its attempts.

    `r_env` is that of the configured level. `before` is the belief about its success rate before
    these attempts. `chance` is that of a guess.
    """

    r_env: float
    successes: int
    n: int
    chance: float
    before: Belief


def pays(rule: PayRule, tasks: Sequence[PaidTask], *, scale: bool) -> list[float]:
    """Return the pay of each task by a rule, from 0 to 1, in order.

    `scale` says whether an agent update divides advantages by the group's standard deviation.
    """
    return [_pay(rule, task, scale) for task in tasks]


def _pay(rule: PayRule, task: PaidTask, scale: bool) -> float:
    if rule == "alpha":
        return task.r_env
    belief = task.before.after(task.successes, task.n)
    if rule == "learnability":
        return learnability(belief, task.chance)
    return signal(belief, task.n, scale=scale)
