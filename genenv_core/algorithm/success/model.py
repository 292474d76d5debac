"""Predicts how likely the agent is to solve a new task, from attempts at others.

A beta-binomial regression: a task's rate is Beta(s m, s (1 - m)), where m is the logistic
regression of its features. The strength s says how much tasks with equal features differ. The model
fits it too (empirical Bayes; Efron, Large-Scale Inference, 2010), so a belief knows its noise.

The agent learns between the attempts that the model is fitted to and those that it speaks about. So
`drift` measures what earlier predictions missed on average, and `predict` adds it.
"""

# scikit-learn and scipy have partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, log1p
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genenv_core.algorithm.success.belief import Belief
from genenv_core.checks import finite

Vector = NDArray[np.float64]

STRENGTHS = (0.1, 1000.0)
"""Bounds of the fitted strength, in attempts. At the lower one a single attempt says nearly all of
a task; at the upper one all tasks with the same features are alike."""

_ROUNDS = 3  # of coefficients, then strength: more change nothing
_EDGE = 1e-3  # no estimate is surer than this before an attempt
_WORD = re.compile(r"\w+|[^\w\s]")
_WORD_SCALE = 0.3  # prior deviation of a word's weight; that of families and numbers is 1
_MOST_WORDS = 1000
_MOST_DRIFT = 3.0  # in log-odds
_LARGEST = 700.0  # log-odds whose exponential is a float64


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a task before any attempt: family, numbers of fixed meaning, a text.

    Numbers and words mean the same only within a `domain`, so each domain has slopes of its own.
    """

    family: str
    numbers: tuple[float, ...] = ()
    text: str = ""
    domain: str = ""


@dataclass(frozen=True, slots=True)
class Attempts:
    """An attempted task: k successes in n attempts.

    `predicted` is the rate that a model without drift predicted before, in log-odds; None without a
    prediction.
    """

    features: Features
    successes: int
    n: int
    predicted: float | None = None


class SuccessModel:
    """The beta-binomial regression: `__init__` fits it, `predict` applies it."""

    def __init__(self, rows: Sequence[Attempts]) -> None:
        """Fit the model to attempted tasks; raises ValueError without any.

        The coefficients are those of a logistic regression with a standard normal prior on each.
        Attempts at one task are alike, so a task of n attempts counts as
        n / (1 + (n - 1) / (strength + 1)) of them, its effective number under a beta-binomial.
        """
        if not rows:
            raise ValueError("SuccessModel needs at least one task that was attempted")
        from scipy.optimize import minimize_scalar
        from scipy.stats import betabinom
        from sklearn.feature_extraction import DictVectorizer
        from sklearn.linear_model import LogisticRegression
        from threadpoolctl import threadpool_limits

        self._words = _common_words([row.features.text for row in rows])
        self._labels = DictVectorizer(sparse=False).fit([self._named(row.features) for row in rows])
        self._scales = {
            domain: _scale([row.features for row in rows if row.features.domain == domain])
            for domain in sorted({row.features.domain for row in rows})
        }
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

    def predict(self, features: Sequence[Features], *, drift: float = 0.0) -> list[Belief]:
        """Return the belief about each task before it is attempted, in order.

        A family or a word that no fitted task had says nothing; the rest still does.

        Args:
            features: those of each task.
            drift: added to the log-odds of each rate; see `drift`.
        """
        if not features:
            return []
        means = self._mean(self._matrix(features), drift).tolist()
        finite(means, "predicted success rates")
        return [Belief(mean, self._strength) for mean in means]

    def _named(self, features: Features) -> dict[str, Any]:
        """Return a task's family, and for each known word in its text log(1 + count), scaled.

        The logarithm keeps long texts from counting as many times a short one.
        """
        counts = Counter(word for word in _WORD.findall(features.text) if word in self._words)
        kind = f"word of {features.domain}" if features.domain else "word"
        words = {f"{kind} {word}": _WORD_SCALE * log1p(count) for word, count in counts.items()}
        return {"family": features.family, **words}

    def _matrix(self, features: Sequence[Features]) -> Vector:
        """Return a row a task: its family, words, and numbers at unit spread, by domain."""
        labels: Any = self._labels.transform([self._named(one) for one in features])
        numbers = np.array([one.numbers for one in features], dtype=np.float64)
        domains = np.array([one.domain for one in features])
        blocks: list[Vector] = [
            np.where((domains == domain)[:, None], (numbers - centre) / spread, 0.0)
            for domain, (centre, spread) in self._scales.items()
        ]
        return np.concatenate([labels, *blocks], axis=1)

    def _mean(self, x: Vector, drift: float = 0.0) -> Vector:
        means: Vector = _rate(self._regression.decision_function(x) + drift)
        return means.clip(_EDGE, 1 - _EDGE)


def log_odds(rate: float) -> float:
    """Return log(rate / (1 - rate)) of a rate above 0 and below 1."""
    return log(rate / (1 - rate))


def drift(rows: Sequence[Attempts]) -> float:
    """Return the log-odds that predictions lacked: with it they expect the successes that came.

    Rows without a prediction do not count; 0.0 where no row has one. At most 3 to either side.
    """
    seen = [row for row in rows if row.predicted is not None]
    if not seen:
        return 0.0
    from scipy.optimize import brentq

    known = np.array([row.predicted for row in seen], dtype=np.float64)
    n = np.array([row.n for row in seen], dtype=np.float64)
    successes = sum(row.successes for row in seen)

    def missing(added: float) -> float:
        return successes - float((n * _rate(known + added)).sum())

    low, high = -_MOST_DRIFT, _MOST_DRIFT
    if missing(low) <= 0:
        return low
    if missing(high) >= 0:
        return high
    root: Any = brentq(missing, low, high)
    return float(root)


def _rate(odds: Vector) -> Vector:
    return 1 / (1 + np.exp(np.minimum(-odds, _LARGEST)))


def _scale(features: Sequence[Features]) -> tuple[Vector, Vector]:
    """Return mean and standard deviation of each number; 1 for one that never differs."""
    numbers = np.array([one.numbers for one in features], dtype=np.float64)
    spread = numbers.std(axis=0)
    return numbers.mean(axis=0), np.where(spread > 0, spread, 1.0)


def _common_words(texts: Sequence[str]) -> frozenset[str]:
    """Return the words that most texts hold; a word of a single text says nothing about others."""
    held = Counter(word for text in texts for word in set(_WORD.findall(text)))
    often = sorted((word for word in held if held[word] > 1), key=lambda word: (-held[word], word))
    return frozenset(often[:_MOST_WORDS])
