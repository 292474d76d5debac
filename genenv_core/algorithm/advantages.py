"""Group-relative advantages (DeepSeekMath, arXiv 2402.03300, section 4.1).

TRL's GRPOTrainer computes those that it trains on. This module computes the same numbers for the
tables and for the choice of groups. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence

from genenv_core.algorithm.stats import mean, sample_std
from genenv_core.checks import finite

EPSILON = 1e-4
"""Added to the standard deviation, as in TRL."""

EQUAL_REWARDS = 1e-9
"""Rewards closer than this count as equal: sums of floats differ in the last bits."""


def zero_signal(rewards: Sequence[float]) -> bool:
    """Return whether a group's rewards are all equal, so that every advantage is 0."""
    checked = finite(rewards, "rewards of a group")
    return max(checked) - min(checked) <= EQUAL_REWARDS


def group_advantages(rewards: Sequence[float], *, scale: bool = True) -> list[float]:
    """Return (r - mean) / (std + 1e-4) for each reward of one group, shape (n,).

    A group of one and a group of equal rewards give zeros, never NaN. With `scale` off it does not
    divide (Dr. GRPO, arXiv 2503.20783).
    """
    checked = finite(rewards, "rewards of a group")
    if zero_signal(checked):
        return [0.0] * len(checked)
    centre = mean(checked)
    divisor = sample_std(checked) + EPSILON if scale else 1.0
    return [(reward - centre) / divisor for reward in checked]
