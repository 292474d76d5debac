"""Weights of the reward-weighted regression (Peters and Schaal, 2007; GenEnv, arXiv 2512.19682).

w = exp(lambda R_env), normalised to mean 1 over the rows of one update. Weights are never centred:
a negative weight moves probability from text to nowhere in particular and destroys a generator.

Departures from the paper, both on by default and off in the preset `paper`:

- `rwr.weight_by` family divides w by the number of the update's rows of the same task family plus
  the mean number of a family, so that a family weighs rather by its rewards than by its size.
  Without it, pi_env under strong rewards ends up writing one kind of task; without the mean, a
  family's only row outweighs all others.
- `curriculum.track` moves the target of the weights against the error of what pi_env wrote, since
  weights alone leave it off alpha for epochs. R_env, the band and reports stay with alpha.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from genenv_core.algorithm.stats import mean
from genenv_core.checks import finite

TARGET_LOW, TARGET_HIGH = 0.2, 0.8
"""How far tracking moves the target: beyond, most groups are all wrong or all right. An alpha
outside of these is its own limit."""


def raw_weight(reward: float, *, lambda_: float) -> float:
    """Return exp(lambda R_env)."""
    finite([reward, lambda_], "raw_weight(reward, lambda)")
    return math.exp(lambda_ * reward)


def tracked_target(skill: float | None, *, alpha: float, track: float) -> float:
    """Return the skill that the weights reward: alpha + track (alpha - skill), in limits.

    `skill` is the success rate of what pi_env wrote in the epoch, above chance; where it is None,
    the target is alpha.
    """
    if skill is None:
        return alpha
    finite([skill, alpha, track], "tracked_target(skill, alpha, track)")
    moved = alpha + track * (alpha - skill)
    return min(max(moved, min(TARGET_LOW, alpha)), max(TARGET_HIGH, alpha))


def step_count(rows: int, *, steps: int, steps_per_row: float) -> int:
    """Return the optimizer steps of an update on `rows` rows: `steps`, fewer for few rows, not 0.

    Each step covers all rows: after many steps on few rows pi_env knows these by heart and writes
    little else.
    """
    return max(1, min(steps, math.ceil(rows * steps_per_row)))


def normalised_weights(
    rewards: Sequence[float], *, lambda_: float, families: Sequence[str] | None = None
) -> list[float]:
    """Return exp(lambda R_env) scaled to mean 1, shape (rows,); [] for no rows.

    The largest reward is taken out before the exponential, so a large lambda cannot overflow. With
    `families`, one a row, a row's share is divided by the number of rows of its family plus the
    mean number of a family.
    """
    if not rewards:
        return []
    checked = finite(rewards, "R_env of the update's rows")
    finite([lambda_], "normalised_weights(lambda)")
    top = max(checked)
    shifted = [math.exp(lambda_ * (reward - top)) for reward in checked]
    if families is not None:
        sizes = Counter(families)
        usual = len(shifted) / len(sizes)
        shifted = [
            value / (sizes[name] + usual) for value, name in zip(shifted, families, strict=True)
        ]
    scale = mean(shifted)
    return [value / scale for value in shifted]
