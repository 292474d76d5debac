"""Results of runs that nobody played, with known effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from genenv_core.compare.results import Played, Point
from genenv_core.config.comparison import Budget, Comparison, Measure, read_comparison


def comparison(arms: Sequence[str], seeds: Sequence[int], **more: object) -> Comparison:
    """Return a comparison of these arms on `tiny`."""
    return read_comparison("tiny", {"arms": list(arms), "seeds": list(seeds), **more})


def played(
    arm: str, seed: int, gains: Sequence[float], spent: Mapping[Budget, Sequence[int]]
) -> Played:
    """Return a run with these gains after its epochs, in every measure, and this spending."""
    points = [Point(0, dict.fromkeys(Budget, 0), dict.fromkeys(Measure, 0.0), {})]
    for place, gain in enumerate(gains):
        paid = {budget: amounts[place] for budget, amounts in spent.items()}
        values = {measure: 0.4 + gain for measure in Measure}
        points.append(Point(place + 1, paid, dict.fromkeys(Measure, gain), values))
    rows = [
        {"epoch": place + 1, "p_hat": 0.5, "share_signal": 0.6, "response_tokens": 20.0}
        for place in range(len(gains))
    ]
    return Played(arm, seed, f"{arm}-s{seed}", points, rows)


def even(epochs: int, each: int = 10) -> dict[Budget, list[int]]:
    """Return a spending of as much in every epoch, of every budget."""
    return {budget: [each * (epoch + 1) for epoch in range(epochs)] for budget in Budget}


def simulated(effects: Mapping[str, float], seeds: int, *, noise: float = 0.01) -> list[Played]:
    """Return runs of one epoch whose gains share the luck of their seed."""
    rng = np.random.default_rng(0)
    found: list[Played] = []
    for seed in range(seeds):
        luck = rng.normal(0, 0.05)
        for arm, effect in effects.items():
            gain = float(effect + luck + rng.normal(0, noise))
            found.append(played(arm, seed, [gain], even(1)))
    return found
