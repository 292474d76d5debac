"""Intervals of what another choice of tasks would have shown, held against what it shows.

Invariant: about 95 % of the intervals hold the played mean, where predictions miss whole families;
`python -m flows.evidence.foreseen` counts the same on stored runs.
"""

from __future__ import annotations

import numpy as np
import pytest

from genenv_core.epoch.writing.foreseeing import ForeseenEpoch, foresee, other_choice
from tests.mutations import mutation
from tests.unit.epoch.builders_foreseen import OTHERS, N, epoch_of


def held(found: ForeseenEpoch, played: dict[str, float]) -> list[bool]:
    return [one.foreseen.low <= played[one.measure] <= one.foreseen.high for one in found.measures]


@mutation(
    "intervals are half as wide",
    "genenv_core/algorithm/success/foreseen.py",
    "half = _quantile(freedom)",
    "half = 0.5 * _quantile(freedom)",
)
@pytest.mark.slow
def test_intervals_hold_what_is_played() -> None:
    """60 cases of four means each."""
    hits: list[bool] = []
    rng = np.random.default_rng(1)
    for case in range(60):
        epoch, truth = epoch_of(case)
        other = OTHERS[case % len(OTHERS)]
        found = foresee(epoch, other, draws=40)
        chosen = other_choice(epoch, other, epoch.attempts, draws=1).chosen
        successes = rng.binomial(N, truth[chosen]).tolist()
        played = {
            name: float(np.mean([measure(k, N, 0.0) for k in successes]))
            for name, measure in other.measures().items()
        }
        hits += held(found, played)
    assert len(hits) == 240
    assert 0.92 <= float(np.mean(hits)) <= 0.99
