"""Means and deviations, in the conventions of the whole project."""

from __future__ import annotations

import math
from collections.abc import Sequence


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean, summed exactly; raises ValueError on an empty sequence."""
    if not values:
        raise ValueError("mean of no values")
    return math.fsum(values) / len(values)


def sample_std(values: Sequence[float]) -> float:
    """Return the standard deviation with n - 1 in the denominator; 0.0 for a single value.

    TRL's GRPOTrainer also divides by n - 1, so advantages here equal the trained ones.
    """
    if len(values) == 1:
        return 0.0
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1))
