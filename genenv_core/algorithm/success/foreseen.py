"""Foresees what another choice of tasks would have shown: a mean, with its interval.

An epoch attempts some of the tasks written for it, by a played rule that draws a share by lot. So
each task had a known probability of an attempt. That lets this module judge another rule's tasks
off-policy, one step ahead:

- a task that the epoch attempted counts with its outcome;
- any other one counts with its expected outcome under the belief before any attempt
  (`belief.py`), plus a correction. The correction is what this expectation missed in attempted
  tasks. There each weighs the probability that the other rule alone takes it over the probability
  of its attempt, self-normalised.

That is the doubly robust estimator (Dudik, Langford and Li, 2011; Hajek's ratio for the weights).
The played rule draws few tasks by lot, so the correction is noisy. An empirical Bayes estimate
(Efron and Morris, 1975) shrinks it, by the variance of such misses (DerSimonian and Laird's
variance between cells of attempted tasks, 1986, around 0). Without that, the interval is half as
wide again on stored runs, and covers no more (docs/method.md).

The interval is for the mean that the other rule would show in one play: it includes the luck of new
attempts. Where the played rule could not attempt a task, the interval allows for any outcome.
"""

# scipy has partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genenv_core.algorithm.success.belief import Belief
from genenv_core.algorithm.success.signal import successes

Numbers = NDArray[np.float64]
Marks = NDArray[np.bool_]

LEVEL = 0.95
"""Share of the intervals that should hold the mean of a play."""


@dataclass(frozen=True, slots=True)
class OtherChoice:
    """What another rule attempts, beside the played one; arrays of shape (tasks,).

    `seen`: attempted under the played rule, with a verdict. `chosen`: attempted under the other.
    `probability`: of an attempt under the played rule. `newly`: of an attempt under the other rule
    alone. `lot`: how many tasks the played rule drew by lot.
    """

    seen: Marks
    chosen: Marks
    probability: Numbers
    newly: Numbers
    lot: int

    @property
    def shared(self) -> Marks:
        """Return which of the other rule's tasks have an outcome."""
        return self.chosen & self.seen

    @property
    def unseen(self) -> Marks:
        """Return which of the other rule's tasks have no played attempt."""
        return self.chosen & ~self.seen

    @property
    def unsupported(self) -> Marks:
        """Return which of them the played rule could not attempt."""
        return self.unseen & (self.probability <= 0)

    @property
    def support(self) -> float:
        """Return the share of the other rule's tasks that the played rule could attempt."""
        return 1 - float(self.unsupported.sum() / self.chosen.sum())

    @property
    def weights(self) -> Numbers:
        """Return how many of the other rule's unseen tasks each seen one stands for."""
        known = self.seen & (self.probability > 0)
        return np.divide(self.newly, self.probability, out=np.zeros_like(self.newly), where=known)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """A measure from 0 to 1 of each task; arrays of shape (tasks,).

    `seen`: its outcome; `foreseen_mean` reads it only where the epoch attempted the task.
    `expected` and `variance`: before any attempt. `repeated`: the variance of new attempts at the
    same task, given the attempts of the epoch.
    """

    seen: Numbers
    expected: Numbers
    variance: Numbers
    repeated: Numbers


@dataclass(frozen=True, slots=True)
class ForeseenMean:
    """A mean that nobody played, and the ends of its interval."""

    value: float
    low: float
    high: float


def foreseen_mean(choice: OtherChoice, outcomes: Outcomes, missed: float) -> ForeseenMean:
    """Return the mean outcome of the other rule's tasks, if an epoch attempted them anew.

    `missed` is the variance of what expectations miss (`variance_between`). The quantile is
    Student's, with one degree of freedom less than the played rule drew tasks by lot. Without
    unseen tasks the shared ones count instead. Raises ValueError where the other rule attempts no
    task.
    """
    count, shared, unseen = int(choice.chosen.sum()), choice.shared, choice.unseen
    if not count:
        raise ValueError("the other rule attempts no task: nothing can be foreseen of it")
    weights, total = choice.weights, float(choice.weights.sum())
    trust = correction = 0.0
    if total > 0 and missed > 0:
        noise = float((weights**2 * outcomes.variance).sum()) / total**2
        trust = missed / (missed + noise)
        residuals = np.where(choice.seen, outcomes.seen - outcomes.expected, 0.0)
        correction = trust * float((weights * residuals).sum()) / total
    found = float(outcomes.seen[shared].sum())
    expected = float(outcomes.expected[unseen].sum()) + int(unseen.sum()) * correction
    value = (found + expected) / count
    variance = (
        2 * float(outcomes.repeated[shared].sum())
        + float(outcomes.variance[unseen].sum())
        + int(unseen.sum()) ** 2 * missed * (1 - trust)
    )
    lone = bool(unseen.any()) and choice.lot > 0
    freedom = max(1, (choice.lot if lone else int(shared.sum())) - 1)
    half = _quantile(freedom) * math.sqrt(variance) / count
    below = float(outcomes.expected[choice.unsupported].sum()) / count
    above = float(choice.unsupported.sum()) / count - below
    return ForeseenMean(
        min(1.0, max(0.0, value)), max(0.0, value - half - below), min(1.0, value + half + above)
    )


def _quantile(freedom: int) -> float:
    from scipy.stats import t

    return float(t.ppf((1 + LEVEL) / 2, freedom))


def variance_between(residuals: Numbers, variances: Numbers, cells: Sequence[str]) -> float:
    """Return the variance between cells of what expectations missed, around 0; 0 without cells.

    Args:
        residuals: outcome less expectation of each attempted task, shape (attempted,).
        variances: of these outcomes, if the expectations were right.
        cells: the cell of each, such as its epoch and family.
    """
    if not len(cells):
        return 0.0
    _, cell = np.unique(np.asarray(cells), return_inverse=True)
    size = np.bincount(cell)
    mean = np.bincount(cell, residuals) / size
    precision = size**2 / np.maximum(np.bincount(cell, variances), 1e-12)
    excess = float((precision * mean**2).sum()) - len(size)
    return max(0.0, excess / float(precision.sum()))


def chances_of(beliefs: Sequence[Belief], attempts: Sequence[int], width: int) -> Numbers:
    """Return the probability of 0, 1, ... successes in the attempts at each task, shape (tasks,
    width); 0 beyond the number of its attempts.
    """
    found = np.zeros((len(beliefs), width))
    for place, (belief, n) in enumerate(zip(beliefs, attempts, strict=True)):
        found[place, : n + 1] = successes(belief, n)
    return found


def moments(chances: Numbers, values: Numbers) -> tuple[Numbers, Numbers]:
    """Return mean and variance of each task's measure, shape (tasks,).

    `chances` and `values` of each number of successes have shape (tasks, width).
    """
    mean = (chances * values).sum(axis=1)
    return mean, np.maximum(0.0, (chances * values**2).sum(axis=1) - mean**2)


def of_two_groups(belief: Belief, n: int) -> Numbers:
    """Return the probability of k and l successes in two groups at one task, shape (n + 1, n + 1).

    They are independent given its success rate, and the first group says something about that rate.
    """
    first = successes(belief, n)
    return np.array(
        [[p * q for q in successes(belief.after(k, n), n)] for k, p in enumerate(first)]
    )


def repeated_variance(groups: Numbers, values: Numbers) -> float:
    """Return the variance of a measure between groups at one task, given its success rate.

    On average that is E[g^2] - E[g g'] of two groups at it. `groups` is `of_two_groups`, `values`
    the measure by successes, shape (n + 1,).
    """
    return max(0.0, float(groups.sum(axis=1) @ values**2 - values @ groups @ values))
