"""The belief about a task's success rate: a Beta distribution, before and after attempts.

Before the attempts the belief is the prediction (`model.py`), or the uniform distribution without
one. k successes in n attempts turn Beta(a, b) into Beta(a + k, b + n - k) (Gelman et al., Bayesian
Data Analysis, 2013, section 2.4). Eight attempts say little of one task. A belief leans on tasks
like it, which k/n does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from genenv_core.algorithm.chance import p_hat
from genenv_core.checks import finite


@dataclass(frozen=True, slots=True)
class Belief:
    """Beta(strength * mean, strength * (1 - mean)); the strength is worth as many attempts."""

    mean: float
    strength: float

    @property
    def a(self) -> float:
        """Return the first shape, which successes add to."""
        return self.strength * self.mean

    @property
    def b(self) -> float:
        """Return the second shape, which failures add to."""
        return self.strength * (1 - self.mean)

    @property
    def variance(self) -> float:
        """Return the variance of the success rate."""
        return self.mean * (1 - self.mean) / (self.strength + 1)

    @property
    def deviation(self) -> float:
        """Return the standard deviation of the success rate."""
        return self.variance**0.5

    def after(self, successes: int, n: int) -> Belief:
        """Return the belief after k of n attempts; raises ValueError unless 0 <= k <= n, n >= 1."""
        p_hat(successes, n)
        strength = self.strength + n
        return Belief((self.a + successes) / strength, strength)


UNIFORM = Belief(0.5, 2.0)
"""The belief where no model has predicted anything."""


def predicted(mean: float | None, deviation: float | None) -> Belief:
    """Return the belief with this mean and standard deviation, or the uniform one without them.

    Raises ValueError for a pair that no Beta distribution has.
    """
    if mean is None or deviation is None:
        return UNIFORM
    finite([mean, deviation], "predicted(mean, deviation)")
    if not 0 < mean < 1 or not 0 < deviation**2 < mean * (1 - mean):
        raise ValueError(
            f"no belief about a rate has mean {mean:g} and deviation {deviation:g}: the mean is "
            "above 0 and below 1, the squared deviation above 0 and below mean (1 - mean)"
        )
    return Belief(mean, mean * (1 - mean) / deviation**2 - 1)
