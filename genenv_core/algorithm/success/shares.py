"""Intervals of shares of independent trials."""

# scipy has partial types only.
# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false

from __future__ import annotations

from typing import Any


def wilson(successes: int, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of n trials, n at least 1.

    The view `calibration` has the same. E. B. Wilson, Probable inference, the law of succession,
    and statistical inference, 1927.
    """
    from scipy.stats import binomtest  # seldom needed, and slow to load

    found: Any = binomtest(successes, n).proportion_ci(0.95, method="wilson")
    return float(found.low), float(found.high)
