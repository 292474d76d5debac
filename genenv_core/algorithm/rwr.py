"""Weights of the reward-weighted regression (Peters and Schaal, 2007; GenEnv, arXiv 2512.19682).

w = exp(lambda R_env), normalised to mean 1 over the rows of one update. Weights are never centred:
a negative weight moves probability from text to nowhere in particular and destroys a generator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from genenv_core.algorithm.stats import mean
from genenv_core.checks import finite


def raw_weight(reward: float, *, lambda_: float) -> float:
    """Return exp(lambda R_env)."""
    finite([reward, lambda_], "raw_weight(reward, lambda)")
    return math.exp(lambda_ * reward)


def step_count(rows: int, *, steps: int, steps_per_row: float) -> int:
    """Return the optimizer steps of an update on `rows` rows: `steps`, fewer for few rows, not 0.

    Each step covers all rows: after many steps on few rows pi_env knows these by heart and writes
    little else.
    """
    return max(1, min(steps, math.ceil(rows * steps_per_row)))


def normalised_weights(rewards: Sequence[float], *, lambda_: float) -> list[float]:
    """Return exp(lambda R_env) scaled to mean 1, shape (rows,); [] for no rows.

    The largest reward is taken out before the exponential, so a large lambda cannot overflow.
    """
    if not rewards:
        return []
    checked = finite(rewards, "R_env of the update's rows")
    finite([lambda_], "normalised_weights(lambda)")
    top = max(checked)
    shifted = [math.exp(lambda_ * (reward - top)) for reward in checked]
    scale = mean(shifted)
    return [value / scale for value in shifted]
