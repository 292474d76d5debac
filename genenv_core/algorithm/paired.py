"""Decides whether one arm is better than another, by their difference for each seed.

The tasks and attempts of one run share its luck, so the number of seeds alone says how sure a
difference is. Both arms play the same seeds. The interval is Student's t over the paired
differences. The test is exact: it counts in how many of the 2^n ways to flip the signs of the
differences the mean is at least as far from zero (Fisher, The Design of Experiments, 1935). A
percentile bootstrap is too narrow for so few values: over five seeds, 95 % intervals cover 84 %.
"""

# scipy has partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from genenv_core.algorithm.stats import mean, sample_std
from genenv_core.checks import finite

LEVEL = 0.05
"""Rate of false alarms over all comparisons of a page; intervals have 1 - LEVEL."""

FEWEST = 6
"""Fewest seeds that decide: the exact test on five pairs cannot go below .0625."""

CLAIM = 10
"""Fewest seeds of a claim."""

MOST_MORE = 1000

_MOST_FLIPS = 2**16  # the test counts all ways to flip the signs of 16 seeds, beyond that a sample


class Decision(StrEnum):
    """The outcome of a comparison."""

    BETTER = "better"
    WORSE = "worse"
    TIE = "not decided"
    FEW = "too few seeds"


@dataclass(frozen=True, slots=True)
class Difference:
    """One arm minus another: mean, ends of the t interval, and exact p-value, raw and after Holm.

    `more_seeds` is how many further seeds would decide if the differences keep their mean and
    deviation: 0 once decided, None where `MOST_MORE` would not do.
    """

    seeds: int
    mean: float
    low: float
    high: float
    p: float
    p_holm: float
    decision: Decision
    more_seeds: int | None

    @property
    def claimed(self) -> bool:
        """Return whether at least `CLAIM` seeds decide it."""
        return self.decision in (Decision.BETTER, Decision.WORSE) and self.seeds >= CLAIM


def compare(gaps: Mapping[str, Sequence[float]]) -> dict[str, Difference]:
    """Return the difference of one arm to each other one, by name, from its gaps, one a seed.

    All comparisons together raise a false alarm in at most `LEVEL` of the cases (Holm, 1979).
    Raises ValueError with fewer than two seeds, and NumericalError for gaps that are not finite.
    """
    for name, values in gaps.items():
        if len(values) < 2:
            raise ValueError(f"{name!r}: a comparison needs two seeds at least, not {len(values)}")
        finite(values, f"differences to {name!r}")
    raw = {name: sign_flip(values) for name, values in gaps.items()}
    adjusted = dict(zip(raw, holm(list(raw.values())), strict=True))
    return {
        name: _difference(values, raw[name], adjusted[name], comparisons=len(gaps))
        for name, values in gaps.items()
    }


def _difference(gaps: Sequence[float], p: float, p_holm: float, *, comparisons: int) -> Difference:
    centre, low, high = interval(gaps)
    decision = Decision.FEW if len(gaps) < FEWEST else Decision.TIE
    if decision is Decision.TIE and p_holm <= LEVEL and (low > 0 or high < 0):
        decision = Decision.BETTER if low > 0 else Decision.WORSE
    more: int | None = 0
    if decision in (Decision.TIE, Decision.FEW):
        more = _more_seeds(centre, sample_std(gaps), len(gaps), comparisons)
    return Difference(len(gaps), centre, low, high, p, p_holm, decision, more)


def interval(gaps: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of at least two differences, and the ends of its t interval."""
    centre, half = mean(gaps), _half_width(sample_std(gaps), len(gaps))
    return centre, centre - half, centre + half


def _half_width(deviation: float, count: int) -> float:
    """Return half the t interval of a mean of `count` values with this sample deviation."""
    from scipy.stats import t

    return float(t.ppf(1 - LEVEL / 2, count - 1)) * deviation / math.sqrt(count)


def sign_flip(gaps: Sequence[float]) -> float:
    """Return the two-sided p-value of the sign-flip test: exact, above 16 seeds of 65,536 flips."""
    from scipy.stats import permutation_test

    if not any(gaps):
        return 1.0  # all flips are equal
    found: Any = permutation_test(
        (list(gaps),),
        np.mean,
        permutation_type="samples",
        n_resamples=_MOST_FLIPS,
        vectorized=True,
        rng=np.random.default_rng(0),
    )
    return float(found.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for their number, in the given order (Holm, 1979)."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted = [0.0] * len(p_values)
    reached = 0.0
    for rank, place in enumerate(order):
        reached = max(reached, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = reached
    return adjusted


def fewest_seeds(comparisons: int) -> int:
    """Return the seeds below which the exact test cannot decide any of so many comparisons.

    On n pairs its p-value cannot go below 2 / 2^n, and Holm multiplies the smallest one by the
    number of comparisons: 6 seeds for one, 7 for two or three, 8 for four to six.
    """
    count = FEWEST
    while 2 / 2**count * comparisons > LEVEL:
        count += 1
    return count


def _more_seeds(centre: float, deviation: float, seeds: int, comparisons: int) -> int | None:
    """Return how many more seeds move the interval off 0 and let the exact test decide."""
    for count in range(max(seeds + 1, fewest_seeds(comparisons)), seeds + MOST_MORE + 1):
        if _half_width(deviation, count) < abs(centre):
            return count - seeds
    return None


def against_itself(values: Sequence[float]) -> tuple[float, float, float] | None:
    """Return the A/A check: one arm's mean over half of its seeds minus that over the others.

    The ends of Welch's 95 % interval come with it. That should hold 0, as both halves are the same
    arm. None with fewer than four seeds.
    """
    one, other = values[0::2], values[1::2]
    return unpaired(one, other) if len(other) > 1 else None


def unpaired(one: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """Return the difference of two means of at least two values, and Welch's 95 % interval."""
    from scipy.stats import ttest_ind

    gap = mean(one) - mean(other)
    if sample_std(one) == sample_std(other) == 0:
        return gap, gap, gap
    interval = ttest_ind(one, other, equal_var=False).confidence_interval(1 - LEVEL)
    return gap, float(interval.low), float(interval.high)
