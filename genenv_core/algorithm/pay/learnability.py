"""Pay `learnability`: how much attempts at a task differ, 4 s (1 - s), expected under a belief.

p (1 - p) is the variance of an attempt, and the score of tasks in sampling for learnability
(Rutherford et al., arXiv 2408.15099; with language models Foster et al., arXiv 2502.12272). This
module takes the skill above chance, s = (p - c) / (1 - c), in place of p, and multiplies by 4, so
that 1 is the most.

The expectation is exact. With k/n in place of p the score would be (n - 1) / n of it on average,
and would rank tasks by the luck of few attempts.
"""

from __future__ import annotations

from genenv_core.algorithm.success.belief import Belief
from genenv_core.checks import finite


def learnability(belief: Belief, chance: float) -> float:
    """Return E[4 s (1 - s)], from 0 to 1; 0 where the belief is below chance.

    It follows from s (1 - s) = (p - c) (1 - p) / (1 - c)^2 and E[p (1 - p)] = m (1 - m) - v for
    mean m and variance v. Raises ValueError unless 0 <= chance < 1.
    """
    finite([belief.a, belief.b, chance], "learnability(belief, chance)")
    if not 0 <= chance < 1:
        raise ValueError(f"the chance of a guess is from 0 to below 1, not {chance:g}")
    mean, variance = belief.mean, belief.variance
    expected = mean * (1 - mean) - variance - chance * (1 - mean)
    return max(0.0, 4 * expected / (1 - chance) ** 2)
