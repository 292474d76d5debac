"""Pay `signal`: how large the advantages of the next group of attempts at a task will be.

The gradient of an agent update is a sum over attempts, each times its advantage. So the norm of a
group's advantages bounds what the group can move. k of its n attempts succeed with the
beta-binomial probability of a belief. The pay is the expected norm as a share of the largest one.

Where the update divides advantages by the group's deviation (`grpo.scale_rewards` group), every
group that is neither all right nor all wrong has nearly the same norm, sqrt(n - 1). The pay is then
the probability of such a group, which dynamic sampling (DAPO, arXiv 2503.14476) and the band go by.
Undivided, the norm is sqrt(k (n - k) / n), which is largest where half succeed.
"""

from __future__ import annotations

import math
from functools import cache

from genenv_core.algorithm.advantages import group_advantages
from genenv_core.algorithm.success.belief import Belief
from genenv_core.checks import finite


def signal(belief: Belief, n: int, *, scale: bool) -> float:
    """Return the pay of a task, from 0 to 1; 0 for groups of one.

    Args:
        belief: about its success rate.
        n: attempts of the next group, each with reward 1 or 0.
        scale: whether the update divides advantages by the group's standard deviation.
    """
    norms = _norms(n, scale)
    if not any(norms):
        return 0.0
    expected = math.fsum(p * norm for p, norm in zip(successes(belief, n), norms, strict=True))
    return min(1.0, expected / max(norms))


def successes(belief: Belief, n: int) -> list[float]:
    """Return the probability of 0, 1, ... n successes in n attempts, shape (n + 1,).

    The beta-binomial distribution, from its ratio of one number of successes to the one before, in
    logarithms: no success in a thousand attempts may be too rare for a float.
    """
    a, b = belief.a, belief.b
    finite([a, b], "successes(belief, n)")
    logs = [math.fsum(math.log((b + i) / (a + b + i)) for i in range(n))]
    for k in range(n):
        logs.append(logs[-1] + math.log((n - k) / (k + 1) * (a + k) / (b + n - k - 1)))
    return [math.exp(one) for one in logs]


@cache
def _norms(n: int, scale: bool) -> tuple[float, ...]:
    """Return the norm of a group's advantages where 0, 1, ... n of its attempts succeed."""
    return tuple(
        math.hypot(*group_advantages([1.0] * k + [0.0] * (n - k), scale=scale))
        for k in range(n + 1)
    )
