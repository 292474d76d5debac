"""Epochs that a rule of choosing has played, with the true success rates of their tasks."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from genenv_core.algorithm.success.belief import predicted
from genenv_core.config.sections.curriculum import CurriculumConfig, GenerationConfig
from genenv_core.epoch.attempting.choosing import Chooser
from genenv_core.epoch.rows import frame
from genenv_core.epoch.writing.foreseeing import ChoosingRule, LoggedEpoch
from genenv_core.types import TaskChoice
from tests.unit.epoch.builders_epoch import generated

N = 8
FAMILIES = 6


def rule(*, alpha: float = 0.5, k_min: float = 0.4, **settings: Any) -> ChoosingRule:
    given: dict[str, Any] = {"tasks": 30, "candidates": 3, "random_share": 0.2} | settings
    return ChoosingRule(GenerationConfig(**given), CurriculumConfig(alpha=alpha, k_min=k_min))


PLAYED = rule()


def epoch_of(seed: int, *, written: int = 90, missed: float = 0.08) -> tuple[LoggedEpoch, Any]:
    """Return an epoch that was played, and the true success rates of its tasks.

    Rates are drawn from the predictions, which miss each family by as much as `missed`.
    """
    rng = np.random.default_rng(seed)
    means = rng.beta(2.5, 1.0, written).clip(0.02, 0.98)
    deviations = np.sqrt(means * (1 - means) * 0.25)
    beliefs = [predicted(*pair) for pair in zip(means, deviations, strict=True)]
    family = rng.integers(0, FAMILIES, written)
    shift = rng.normal(0, missed, FAMILIES)[family]
    truth = (np.array([rng.beta(one.a, one.b) for one in beliefs]) + shift).clip(0, 1)
    rows = [
        generated(
            f"t{place:02d}", "w" * (family[place] + 1), predicted_p=float(means[place]),
            predicted_sd=float(deviations[place]), predicted_drift=0.0,
        )
        for place in range(written)
    ]  # fmt: skip
    return logged(frame("tasks", rows), truth, seed, PLAYED, rng), truth


def logged(
    tasks: pl.DataFrame, truth: Any, seed: int, played: ChoosingRule, rng: np.random.Generator
) -> LoggedEpoch:
    choices = [TaskChoice.NOT_CHOSEN.value] * tasks.height
    for turns in Chooser(tasks).turns(played.generation, played.curriculum, seed):
        for place in turns.lot:
            choices[place] = TaskChoice.RANDOM.value
        for place in turns.near:
            choices[place] = TaskChoice.PREDICTED.value
    tasks = tasks.with_columns(choice=pl.Series(choices))
    attempts = tasks.with_columns(successes=pl.Series(rng.binomial(N, truth)), n=pl.lit(N)).filter(
        pl.col("choice") != TaskChoice.NOT_CHOSEN.value
    )
    return LoggedEpoch(2, tasks, attempts, played, seed, N)


OTHERS = [
    rule(choose_by="family"), rule(random_share=1.0), rule(alpha=0.7), rule(k_min=0.2),
    rule(candidates=2), rule(tasks=20),
]  # fmt: skip
