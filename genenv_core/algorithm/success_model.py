"""How likely the agent is to solve a task that nobody attempted, from attempts at others.

A beta-binomial regression: a task's rate is Beta(s m, s (1 - m)), where m is the logistic
regression of its features. The strength s, which says how much tasks with equal features differ, is
fitted too (empirical Bayes; Efron, Large-Scale Inference, 2010), so an estimate knows its noise.
"""

# scikit-learn and scipy have partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genenv_core.checks import finite

Vector = NDArray[np.float64]

STRENGTHS = (0.1, 1000.0)
"""Bounds of the fitted strength, in attempts: at the lower one a single attempt says nearly all of
a task, at the upper one all tasks with the same features are alike."""

_ROUNDS = 3  # of coefficients, then strength: more change nothing
_EDGE = 1e-3  # no estimate is surer than this before an attempt


@dataclass(frozen=True, slots=True)
class Features:
    """What is known of a task before it is attempted: its family, and numbers of fixed meaning."""

    family: str
    numbers: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Attempts:
    """A task that was attempted: k successes in n attempts."""

    features: Features
    successes: int
    n: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """A belief about a task's success rate: Beta(strength * mean, strength * (1 - mean))."""

    mean: float
    strength: float

    @property
    def deviation(self) -> float:
        """Return the standard deviation of the belief."""
        return (self.mean * (1 - self.mean) / (self.strength + 1)) ** 0.5


class SuccessModel:
    """The beta-binomial regression; fitted once, then asked."""

    def __init__(self, rows: Sequence[Attempts]) -> None:
        """Fit the model to tasks that were attempted; raises ValueError without any.

        The coefficients are those of a logistic regression with a standard normal prior on each.
        Attempts at one task are alike, so a task of n attempts counts as
        n / (1 + (n - 1) / (strength + 1)) of them, its effective number under a beta-binomial.
        """
        if not rows:
            raise ValueError("SuccessModel needs at least one task that was attempted")
        from scipy.optimize import minimize_scalar
        from scipy.stats import betabinom
        from sklearn.linear_model import LogisticRegression
        from threadpoolctl import threadpool_limits

        self._families = sorted({row.features.family for row in rows})
        numbers = np.array([row.features.numbers for row in rows], dtype=np.float64)
        self._centre = numbers.mean(axis=0)
        spread = numbers.std(axis=0)
        self._spread = np.where(spread > 0, spread, 1.0)
        x = self._matrix([row.features for row in rows])
        k = np.array([row.successes for row in rows], dtype=np.float64)
        n = np.array([row.n for row in rows], dtype=np.float64)
        # Half a success and half a failure in all, so that equal outcomes leave a finite intercept.
        half = 0.5 / len(rows)
        outcome = np.repeat([1, 0], len(rows))
        self._strength = 1.0
        with threadpool_limits(limits=1):  # the same bits on every machine with one thread
            for _ in range(_ROUNDS):
                effective = 1 / (1 + (n - 1) / (self._strength + 1))
                weights = np.concatenate([effective * k + half, effective * (n - k) + half])
                self._regression = LogisticRegression(max_iter=1000)
                self._regression.fit(np.concatenate([x, x]), outcome, sample_weight=weights)
                mean = self._mean(x)

                def loss(log_strength: float, mean: Vector = mean) -> float:
                    s = exp(log_strength)
                    return -float(betabinom.logpmf(k, n, s * mean, s * (1 - mean)).sum())

                low, high = map(log, STRENGTHS)
                found: Any = minimize_scalar(loss, bounds=(low, high), method="bounded")
                self._strength = exp(float(found.x))
        finite([self._strength], "the strength of the success model")

    @property
    def strength(self) -> float:
        """Return how many attempts the features are worth: the fitted s."""
        return self._strength

    def predict(self, features: Sequence[Features]) -> list[Estimate]:
        """Return the belief about each task before it is attempted, in order.

        A family that no fitted task had says nothing; the numbers still do.
        """
        if not features:
            return []
        means = finite(self._mean(self._matrix(features)).tolist(), "predicted success rates")
        return [Estimate(mean, self._strength) for mean in means]

    def _matrix(self, features: Sequence[Features]) -> Vector:
        """Return a row a task: whether it is of each family, and its numbers at unit spread."""
        labels = np.array(
            [[one.family == name for name in self._families] for one in features], dtype=np.float64
        )
        numbers = np.array([one.numbers for one in features], dtype=np.float64)
        return np.concatenate([labels, (numbers - self._centre) / self._spread], axis=1)

    def _mean(self, x: Vector) -> Vector:
        means: Vector = self._regression.predict_proba(x)[:, 1]
        return means.clip(_EDGE, 1 - _EDGE)
