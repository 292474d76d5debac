"""Says from stored attempts whether tasks are worth training on, by seven checks.

Each check has an estimate, a 95 % interval and a limit. It passes or fails where the whole interval
lies on one side of the limit; otherwise it cannot say. The names are those that OpenEnv's RFC 008
reserves for its statistical level, without a definition so far. The limits are ours.

The unit is the task, because attempts at one task are alike. Intervals take tasks as independent.
Tasks that pi_env wrote for one base task resemble each other, so with few base tasks the intervals
are somewhat narrow.
"""

# scipy has partial types only.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from genenv_core.algorithm.stats import mean, sample_std
from genenv_core.algorithm.success.shares import wilson

FEWEST = 10
"""Fewest tasks for an interval by a bootstrap over tasks."""

RESAMPLES = 1000
"""Draws of the bootstrap; the ends of its interval then vary by about .01."""

_CHUNK = 2_000_000  # numbers of resampled tasks that are in memory at once

_ADDED = (0.0, 0.5, 1.0)  # success of the tasks that the wider interval adds

Array = np.ndarray[Any, np.dtype[np.float64]]


class Worth(StrEnum):
    """The verdict of a check."""

    PASS = "pass"
    FAIL = "fail"
    UNSURE = "cannot say"


@dataclass(frozen=True, slots=True)
class AttemptedTask:
    """A task's attempts that have a verdict, n at least 1.

    `solved` says whether an attempt of the agent or the domain's own succeeded. `chance` is how
    often a guess is right, None where the run did not store it.
    """

    n: int
    successes: int
    solved: bool
    chance: float | None

    @property
    def rate(self) -> float:
        """Return the share of successes."""
        return self.successes / self.n


class GroupCounts(NamedTuple):
    """Groups of attempts, those whose rewards differ, and the mean deviation of their rewards."""

    groups: int
    differing: int
    reward_std: float


class WorthRule(NamedTuple):
    """A check: what it measures, its unit, its limit, and the remedy where it fails.

    `explains` says in a sentence, to people who do not know genenv, why the check matters.
    """

    measures: str
    unit: str
    limit: float
    at_least: bool
    remedy: str
    explains: str


RULES = {
    # Below, more than one attempt in ten is at a task that nobody ever solved.
    "reachable": WorthRule(
        "tasks that an attempt solved, or the domain itself", "tasks", 0.9, True,
        "look at tasks that nobody solved: genenv sql 'FROM task_scores WHERE successes = 0'",
        "An attempt at a task that nobody ever solved teaches nothing.",
    ),
    # Below, most attempts are at tasks that are always or never solved.
    "separating": WorthRule(
        "tasks with both successes and failures", "tasks", 0.5, True,
        "most tasks are always or never solved: let the run choose among more tasks "
        "(generation.candidates), or attempt each more often (rollout.n)",
        "A task that is always solved, or never, does not tell a better agent from a worse one.",
    ),
    # Below, an agent that learned everything would gain less than ten points.
    "headroom": WorthRule(
        "failures, as a mean over tasks", "tasks", 0.1, True,
        "the agent solves nearly all: give it harder tasks",
        "Where the agent fails seldom, little is left to learn.",
    ),
    # Below, more than nineteen twentieths of the variance of outcomes are luck.
    "variance": WorthRule(
        "part of the variance of outcomes that lies between tasks", "tasks", 0.05, True,
        "all tasks are about as hard, so what tells them apart is luck: attempt each more often "
        "(rollout.n), or let pi_env write more kinds",
        "Where all tasks are as hard as each other, what tells them apart is luck.",
    ),
    # Below, GRPO throws away every second group.
    "signal": WorthRule(
        "groups whose rewards differ, so that pi_agent learns", "groups", 0.5, True,
        "pi_agent learns nothing from most groups: aim at tasks that are solved now and then "
        "(curriculum.alpha), or attempt each more often (rollout.n)",
        "An agent learns by comparing attempts at one task, so their rewards have to differ.",
    ),
    # Above, more than one task in twenty pays for a senseless answer.
    "floor": WorthRule(
        "tasks that a trivial or senseless answer solves", "tasks", 0.05, False,
        "let the domain's score refuse such answers",
        "A task that a senseless answer solves pays for nothing.",
    ),
    # Below, nearly all success can be luck.
    "chance": WorthRule(
        "success above that of a guess, as a mean over tasks", "tasks", 0.05, True,
        "the agent hardly does better than a guess: give it easier tasks, or a warm start",
        "Success that is no more frequent than that of a guess can be luck.",
    ),
}  # fmt: skip
"""The checks by name, in the order of a table."""


@dataclass(frozen=True, slots=True)
class WorthCheck:
    """One check: its estimate with the ends of its 95 % interval, each None if unknown.

    `n` counts in the rule's unit. `fact` is one more remark, or ''.
    """

    name: str
    estimate: float | None
    low: float | None
    high: float | None
    n: int
    fact: str = ""

    @property
    def rule(self) -> WorthRule:
        """Return the rule of the check."""
        return RULES[self.name]

    @property
    def worth(self) -> Worth:
        """Return PASS or FAIL where the whole interval is on one side of the limit, else UNSURE."""
        if self.low is None or self.high is None:
            return Worth.UNSURE
        limit = self.rule.limit
        if self.rule.at_least:
            good, bad = self.low >= limit, self.high < limit
        else:
            good, bad = self.high <= limit, self.low > limit
        return Worth.PASS if good else Worth.FAIL if bad else Worth.UNSURE


def worth_of(
    tasks: Sequence[AttemptedTask], groups: GroupCounts, floor: tuple[int, int]
) -> list[WorthCheck]:
    """Return all checks; `floor` counts tasks that a trivial answer solves, and tasks checked.

    - reachable, separating, floor: shares of tasks, with Wilson's interval; separating of those
      with two attempts or more.
    - signal: share of groups whose rewards differ, with Wilson's interval. A group of equal rewards
      has no advantage (Shao et al., GRPO, arXiv 2402.03300, eq. 3 with a zero deviation), and DAPO
      leaves it out (Yu et al., arXiv 2503.14476, eq. 11).
    - headroom: 1 - mean_i k_i/n_i, with `mean_interval`.
    - variance: `between_tasks`, at least 0, with `between_interval`.
    - chance: mean_i (k_i/n_i - c_i) for the chance c_i of a guess, with `mean_interval` shifted.
    """
    return [
        _reachable(tasks),
        _separating(tasks),
        _headroom(tasks),
        _variance(tasks),
        _signal(groups),
        _share("floor", *floor),
        _above_chance(tasks),
    ]


def _share(name: str, having: int, n: int, fact: str = "") -> WorthCheck:
    if not n:
        return WorthCheck(name, None, None, None, 0)
    return WorthCheck(name, having / n, *wilson(having, n), n, fact)


def _reachable(tasks: Sequence[AttemptedTask]) -> WorthCheck:
    solved = sum(task.solved for task in tasks)
    by_agent = sum(task.successes > 0 for task in tasks)
    return _share("reachable", solved, len(tasks), f"the agent solved {by_agent}")


def _separating(tasks: Sequence[AttemptedTask]) -> WorthCheck:
    several = [one for one in tasks if one.n > 1]  # one attempt cannot do both
    return _share("separating", sum(0 < one.successes < one.n for one in several), len(several))


def _signal(groups: GroupCounts) -> WorthCheck:
    fact = f"standard deviation of rewards {groups.reward_std:.2f} on average"
    return _share("signal", groups.differing, groups.groups, fact)


def _headroom(tasks: Sequence[AttemptedTask]) -> WorthCheck:
    if not tasks:
        return WorthCheck("headroom", None, None, None, 0)
    low, high = mean_interval(tasks)
    return WorthCheck("headroom", 1 - _mean_rate(tasks), 1 - high, 1 - low, len(tasks))


def _above_chance(tasks: Sequence[AttemptedTask]) -> WorthCheck:
    known = [task for task in tasks if task.chance is not None]
    if not known:
        return WorthCheck("chance", None, None, None, 0)
    guessed = [task.chance or 0.0 for task in known]
    above = [task.rate - chance for task, chance in zip(known, guessed, strict=True)]
    low, high = mean_interval(known, sample_std(above))
    chance = mean(guessed)
    fact = f"a guess is right in {chance:.1%}"
    return WorthCheck("chance", mean(above), low - chance, high - chance, len(known), fact)


def _variance(tasks: Sequence[AttemptedTask]) -> WorthCheck:
    several = [task for task in tasks if task.n > 1]
    share = between_tasks(several)
    low, high = between_interval(several) if share is not None else (None, None)
    estimate = None if share is None else max(0.0, share)
    return WorthCheck("variance", estimate, low, high, len(several))


def _mean_rate(tasks: Sequence[AttemptedTask]) -> float:
    return mean([task.rate for task in tasks])


def mean_interval(tasks: Sequence[AttemptedTask], deviation: float = 0.0) -> tuple[float, float]:
    """Return the 95 % interval of the mean success of a task.

    It is Wilson's score interval of an effective number of attempts, m_e = p (1 - p) / (s^2 / m),
    with Student's t of m - 1 degrees for the normal quantile: p is the mean over m tasks, s their
    sample deviation, or `deviation` if that is greater (Korn and Graubard, Survey Methodology 24,
    1998, who do so with Clopper's interval). m_e is at most the number of attempts, which are at
    best independent. Where all attempts end alike m_e is m, as though each task had one attempt, so
    few tasks never look sure. A t interval of m equal rates would have no width. The view
    `calibration` does the same for all attempts of an epoch, with the normal quantile.
    """
    from scipy.stats import t

    count, rate = len(tasks), _mean_rate(tasks)
    if count == 1:
        return 0.0, 1.0
    spread = max(sample_std([task.rate for task in tasks]), deviation) ** 2 / count
    even = rate * (1 - rate)
    size: float = count
    if even > 0:
        attempts = sum(task.n for task in tasks)
        size = min(even / spread, attempts) if spread > 0 else attempts
    share = float(t.ppf(0.975, count - 1)) ** 2 / size
    centre = (rate + share / 2) / (1 + share)
    half = math.sqrt(share * even + share**2 / 4) / (1 + share)
    return max(0.0, centre - half), min(1.0, centre + half)


def between_tasks(tasks: Sequence[AttemptedTask]) -> float | None:
    """Return the part of the variance of an attempt's outcome that lies between tasks.

    With p_i = k_i / n_i of m tasks, by moments (Kleinman, J. Am. Stat. Assoc. 68, 1973; Ridout,
    Demetrio and Firth, Biometrics 55, 1999, call it the intraclass correlation):

        within  = mean_i n_i p_i (1 - p_i) / (n_i - 1)
        between = sum_i (p_i - p)^2 / (m - 1) - mean_i p_i (1 - p_i) / (n_i - 1)
        part    = between / (between + within)

    The second term of `between` is binomial noise. Without a difference between tasks the part is 0
    on average, so it may be below 0. None with fewer than two tasks of two attempts, or where all
    attempts end alike.
    """
    if len(tasks) < 2:
        return None
    found = _parts(_moments(tasks).sum(axis=0)[None, :], len(tasks))
    return float(found[0]) if len(found) else None


def between_interval(tasks: Sequence[AttemptedTask]) -> tuple[float | None, float | None]:
    """Return the 95 % interval of that part, from 0 to 1; None with fewer than `FEWEST` tasks.

    It is a percentile bootstrap over tasks with a fixed seed, at percentiles widened by Student's t
    (Hesterberg, The American Statistician 69, 2015). Where few attempts succeed, or few fail, it
    would seldom see the tasks that differ: with 30 tasks of 4 attempts it covered 85 % in the worst
    simulation. So the function joins it with a second one over three more tasks, solved never, half
    the time and always, in the manner of Agresti and Coull (The American Statistician 52, 1998).
    """
    if len(tasks) < FEWEST:
        return None, None
    own = _moments(tasks)
    attempts = mean([task.n for task in tasks])
    added = np.array([_moment(rate, attempts) for rate in _ADDED])
    ends = [_bootstrap(own), _bootstrap(np.concatenate([own, added]))]
    low, high = min(one for one, _ in ends), max(one for _, one in ends)
    return max(0.0, low), min(1.0, high)


def _moments(tasks: Sequence[AttemptedTask]) -> Array:
    """Return p, p^2, the variance within and the noise of p, shape (m, 4)."""
    return np.array([_moment(task.rate, task.n) for task in tasks], dtype=np.float64)


def _moment(rate: float, n: float) -> tuple[float, float, float, float]:
    noise = rate * (1 - rate) / (n - 1)
    return rate, rate * rate, n * noise, noise


def _parts(sums: Array, count: int) -> Array:
    """Return the part between tasks from sums of moments, (draws, 4), where it is defined."""
    means = sums / count
    between = (means[:, 1] - means[:, 0] ** 2) * count / (count - 1) - means[:, 3]
    whole = between + means[:, 2]
    some = whole > 1e-9
    return between[some] / whole[some]


def _bootstrap(moments: Array) -> tuple[float, float]:
    """Return the ends of the percentile interval over resampled tasks."""
    from scipy.stats import norm, t

    count, rng = len(moments), np.random.default_rng(0)
    even = np.full(count, 1 / count)
    step = max(1, _CHUNK // count)
    sizes = [min(step, RESAMPLES - start) for start in range(0, RESAMPLES, step)]
    drawn = [_parts(rng.multinomial(count, even, size) @ moments, count) for size in sizes]
    wider = t.ppf(0.025, count - 1) * math.sqrt(count / (count - 1))
    edge = float(norm.cdf(wider))
    low, high = np.quantile(np.concatenate(drawn), [edge, 1 - edge])
    return float(low), float(high)
