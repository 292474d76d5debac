"""Pay `alpha`: R_env of the measured skill, as in the paper (GenEnv, arXiv 2512.19682).

A departure from the paper, on by default and off in the preset `paper`: `curriculum.track` moves
the target of the pay to the other side of alpha than the skill at the epoch's tasks. Weights alone
leave that skill off alpha for epochs. R_env, the band and reports stay with alpha.
"""

from __future__ import annotations

from genenv_core.checks import finite

TARGET_LOW, TARGET_HIGH = 0.2, 0.8
"""How far tracking moves the target: beyond these, most groups are all wrong or all right. An alpha
outside of them is its own limit."""


def tracked_target(skill: float | None, *, alpha: float, track: float) -> float:
    """Return the skill that the weights reward: alpha + track (alpha - skill), within the limits.

    `skill` is the agent's success rate, above chance, at what pi_env wrote in the epoch; where it
    is None, the target is alpha.
    """
    if skill is None:
        return alpha
    finite([skill, alpha, track], "tracked_target(skill, alpha, track)")
    moved = alpha + track * (alpha - skill)
    return min(max(moved, min(TARGET_LOW, alpha)), max(TARGET_HIGH, alpha))
