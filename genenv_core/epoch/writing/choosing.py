"""Chooses the tasks of pi_env that the agent attempts: those whose predicted skill is near alpha.

Attempts cost far more than a text, and most tasks that pi_env writes are too easy or too hard to
teach anything. So it writes several for each one attempted. The prediction learns from the attempts
of earlier epochs, by family, difficulty, length and words of the request, and from what it missed
in them. A share is drawn by lot instead: without it nobody would see what pi_env writes, or how
good the prediction is.

In a run of several domains each gets its share of the attempts, and is predicted and chosen by
itself: the difficulties of two domains do not compare, nor does how fast the agent learns them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from math import log
from typing import Any

import numpy as np
import polars as pl

from genenv_core.algorithm.chance import above_chance
from genenv_core.algorithm.selection import in_band
from genenv_core.algorithm.stats import mean
from genenv_core.algorithm.success.belief import Belief
from genenv_core.algorithm.success.model import (
    Attempts,
    Features,
    SuccessModel,
    drift,
    log_odds,
)
from genenv_core.config.sections.curriculum import CurriculumConfig, GenerationConfig
from genenv_core.domains.shares import Shares
from genenv_core.epoch.rows import of_source
from genenv_core.types import TaskChoice, TaskSource

ONE_DOMAIN = Shares()


def features(task: dict[str, Any], shares: Shares = ONE_DOMAIN) -> Features:
    """Return what is known of a row of `tasks` before it is attempted."""
    prompt, family = task["prompt"], task["family"]
    numbers = (task["difficulty"], log(1 + len(prompt)))
    return Features(family, numbers, prompt, shares.domain_of(family))


def rated_attempts(
    tasks: pl.DataFrame, task_scores: pl.DataFrame, shares: Shares = ONE_DOMAIN
) -> list[Attempts]:
    """Return the attempts at tasks of pi_env, of the rows of `tasks` and `task_scores` given."""
    written = of_source(tasks, TaskSource.GENERATED)
    counts = task_scores.select("task_id", "successes", "n")
    rows = written.join(counts, on="task_id", how="inner", maintain_order="left")
    return [
        Attempts(features(row, shares), row["successes"], row["n"], _predicted(row))
        for row in rows.iter_rows(named=True)
    ]


def _predicted(task: dict[str, Any]) -> float | None:
    """Return the prediction of a row of `tasks` in log-odds, without the drift that is in it."""
    rate = task["predicted_p"]
    return None if rate is None else log_odds(rate) - task["predicted_drift"]


def choose(
    tasks: pl.DataFrame,
    known: Sequence[Attempts],
    *,
    settings: GenerationConfig,
    curriculum: CurriculumConfig,
    seed: int,
    shares: Shares = ONE_DOMAIN,
) -> pl.DataFrame:
    """Return `tasks` with the columns of the choice and the prediction of each one.

    Args:
        tasks: what pi_env wrote in an epoch.
        known: attempts of earlier epochs. Without any, all of the choice is by lot.
        settings: how many are attempted, and which share of these by lot.
        curriculum: the target success rate, and how far from it a task may teach.
        seed: of the lot.
        shares: how much of the attempts each domain of the run gets. What one of them lacks is not
            replaced by others.
    """
    valid = tasks.filter("valid")
    rows = [features(row, shares) for row in valid.iter_rows(named=True)]
    places: dict[str, list[int]] = {domain: [] for domain in shares.names}
    for place, row in enumerate(rows):
        places[row.domain].append(place)
    model = SuccessModel(known) if known and settings.candidates > 1 else None
    chances, families = _chances(valid), valid["family"].to_list()
    choices: dict[int, TaskChoice] = {}
    predicted: dict[int, Belief] = {}
    missed: dict[str, float] = {}
    split = shares.split(settings.tasks)
    for number, (domain, own) in enumerate(places.items()):
        before = [one for one in known if one.features.domain == domain]
        missed[domain] = drift(before)
        beliefs: list[Belief] = []
        if model and before:
            beliefs = model.predict([rows[place] for place in own], drift=missed[domain])
        predicted |= zip(own, beliefs, strict=False)
        skills = [
            above_chance(one.mean, chances[place]) for place, one in zip(own, beliefs, strict=False)
        ]
        made = _choices(
            [families[place] for place in own],
            skills,
            settings.model_copy(update={"tasks": split[domain]}),
            curriculum,
            [seed, number] if domain else seed,
        )
        choices |= zip(own, made, strict=True)
    believed = [predicted.get(place) for place in range(len(rows))]
    chosen = valid.select("task_id").with_columns(
        choice=pl.Series(
            [choices[place].value for place in range(len(rows))],
            dtype=pl.String,
        ),
        predicted_p=_numbers([one and one.mean for one in believed]),
        predicted_sd=_numbers([one and one.deviation for one in believed]),
        predicted_drift=_numbers(
            [one and missed[row.domain] for one, row in zip(believed, rows, strict=True)]
        ),
    )
    others = tasks.drop(set(chosen.columns) - {"task_id"})
    return others.join(chosen, on="task_id", how="left", maintain_order="left").select(
        tasks.columns
    )


def _numbers(values: Sequence[float | None]) -> pl.Series:
    return pl.Series(values, dtype=pl.Float64)


def _choices(
    families: Sequence[str],
    predicted: Sequence[float],
    settings: GenerationConfig,
    curriculum: CurriculumConfig,
    seed: int | Sequence[int],
) -> list[TaskChoice]:
    """Return the choice of each task that was written, by the skill predicted for each.

    Without predictions all is by lot. `families` has the family of each.
    """
    written = len(families)
    count = min(settings.tasks, written)
    by_lot = round(settings.random_share * count) if predicted else count
    choice = [TaskChoice.NOT_CHOSEN] * written
    for place in np.random.default_rng(seed).permutation(written)[:by_lot].tolist():
        choice[place] = TaskChoice.RANDOM
    rates = dict(enumerate(predicted))
    lot = [rates.pop(place) for place in list(rates) if choice[place] is TaskChoice.RANDOM]
    turns = families if settings.choose_by == "family" else None
    for place in _near(rates, count - by_lot, lot, curriculum, turns):
        choice[place] = TaskChoice.PREDICTED
    return choice


def _near(
    rates: Mapping[int, float],
    count: int,
    lot: Sequence[float],
    curriculum: CurriculumConfig,
    families: Sequence[str] | None,
) -> list[int]:
    """Return `count` places whose skills are nearest to alpha and average to it, with those by lot.

    Where most of what pi_env writes is too easy, the nearest alone would be too easy on average.
    So the next one is taken from the other side of alpha than the mean so far. That holds within
    the band of k_min; beyond it, where a task hardly teaches, the nearest are taken. With
    `families` those of the band take turns: the nearest of each family, then the next of each.
    """
    alpha, k_min = curriculum.alpha, curriculum.k_min
    order = sorted(rates, key=lambda place: abs(rates[place] - alpha))
    band = [place for place in order if in_band(rates[place], alpha=alpha, k_min=k_min)]
    if families is not None:
        band = _in_turn(band, families)
    below = deque(place for place in band if rates[place] < alpha)
    above = deque(place for place in band if rates[place] >= alpha)
    near: list[int] = []
    total = sum(lot)
    while len(near) < count and (below or above):
        too_easy = total > alpha * (len(lot) + len(near))
        side = (below or above) if too_easy else (above or below)
        near.append(side.popleft())
        total += rates[near[-1]]
    return near + order[len(band) :][: count - len(near)]


def _in_turn(places: Sequence[int], families: Sequence[str]) -> list[int]:
    """Return the places so that the first of each family come first, then the second of each."""
    before = Counter[str]()
    turn: dict[int, int] = {}
    for place in places:
        turn[place] = before[families[place]]
        before[families[place]] += 1
    return sorted(places, key=turn.__getitem__)


def attempted_tasks(tasks: pl.DataFrame) -> pl.DataFrame:
    """Return the valid rows of `tasks` without those that were not chosen."""
    return tasks.filter(pl.col("valid") & pl.col("choice").ne_missing(TaskChoice.NOT_CHOSEN.value))


def written_p_hat(tasks: pl.DataFrame, task_scores: pl.DataFrame) -> float | None:
    """Return the success rate expected over all tasks that pi_env wrote, chosen or not.

    A task that was attempted counts with its share of successes, another one with its prediction.
    Without predictions the attempted ones, drawn by lot, stand for all. None without any.
    """
    rates = _written(tasks, task_scores)["rate"].to_list()
    return mean(rates) if rates else None


def written_skill(tasks: pl.DataFrame, task_scores: pl.DataFrame) -> float | None:
    """Return the skill expected over those tasks: their mean rate above their mean chance."""
    written = _written(tasks, task_scores)
    if written.is_empty():
        return None
    return above_chance(mean(written["rate"].to_list()), mean(_chances(written)))


def _written(tasks: pl.DataFrame, task_scores: pl.DataFrame) -> pl.DataFrame:
    written = of_source(tasks, TaskSource.GENERATED).filter("valid")
    seen = task_scores.select("task_id", seen="p_hat")
    rated = written.join(seen, on="task_id", how="left").select(
        "chance", rate=pl.coalesce("seen", "predicted_p")
    )
    return rated.drop_nulls("rate")


def _chances(tasks: pl.DataFrame) -> list[float]:
    return tasks["chance"].fill_null(0.0).to_list()
