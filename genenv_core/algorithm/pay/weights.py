"""Weights of the reward-weighted regression (Peters and Schaal, 2007; GenEnv, arXiv 2512.19682).

w = exp(lambda pay), normalised to mean 1 over the rows of one update. This module never centres
weights: a negative one moves probability from a text to nowhere in particular, and destroys a
generator.

A departure from the paper, on by default and off in the preset `paper`: `rwr.weight_by` family
divides w by the number of the update's rows of the same task family plus the mean number of a
family. So a family weighs by its pay more than by its size. Without the division, pi_env under
strong rewards ends up writing one kind of task. Without the mean, a family's only row outweighs all
others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from genenv_core.algorithm.stats import mean
from genenv_core.checks import finite


def raw_weight(paid: float, *, lambda_: float) -> float:
    """Return exp(lambda pay)."""
    finite([paid, lambda_], "raw_weight(pay, lambda)")
    return math.exp(lambda_ * paid)


def step_count(rows: int, *, steps: int, steps_per_row: float) -> int:
    """Return the optimizer steps of an update on `rows` rows: `steps`, fewer for few rows, never 0.

    Each step covers all rows. After many steps on few rows, pi_env knows these by heart and writes
    little else.
    """
    return max(1, min(steps, math.ceil(rows * steps_per_row)))


def normalised_weights(
    paid: Sequence[float], *, lambda_: float, families: Sequence[str] | None = None
) -> list[float]:
    """Return exp(lambda pay) scaled to mean 1, shape (rows,); [] for no rows.

    The function subtracts the largest pay before the exponential, so a large lambda cannot
    overflow. With `families`, one a row, it divides a row's share by the number of rows of its
    family plus the mean number of a family.
    """
    if not paid:
        return []
    checked = finite(paid, "the pay of the update's rows")
    finite([lambda_], "normalised_weights(lambda)")
    top = max(checked)
    shifted = [math.exp(lambda_ * (one - top)) for one in checked]
    if families is not None:
        sizes = Counter(families)
        usual = len(shifted) / len(sizes)
        shifted = [
            value / (sizes[name] + usual) for value, name in zip(shifted, families, strict=True)
        ]
    scale = mean(shifted)
    return [value / scale for value in shifted]
