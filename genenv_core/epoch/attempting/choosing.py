"""Chooses the tasks of pi_env that the agent attempts: those whose predicted skill is near alpha.

Attempts cost far more than a text, and most tasks that pi_env writes are too easy or too hard to
teach anything. So pi_env writes several for each attempted one. The prediction learns from the
attempts of earlier epochs, by family, difficulty, length and words of the request, and from what it
missed in them. The choice draws a share by lot instead, which shows what pi_env writes and how good
the prediction is.

In a run of several domains each gets its share of the attempts, with a prediction and a choice of
its own: the difficulties of two domains do not compare, nor does how fast the agent learns them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    """Return the features of a row of `tasks`, which it has before any attempt."""
    prompt, family = task["prompt"], task["family"]
    numbers = (task["difficulty"], log(1 + len(prompt)))
    return Features(family, numbers, prompt, shares.domain_of(family))


def rated_attempts(
    tasks: pl.DataFrame, task_scores: pl.DataFrame, shares: Shares = ONE_DOMAIN
) -> list[Attempts]:
    """Return the attempts at tasks of pi_env among rows of `tasks` and `task_scores`."""
    written = of_source(tasks, TaskSource.GENERATED)
    counts = task_scores.select("task_id", "successes", "n")
    rows = written.join(counts, on="task_id", how="inner", maintain_order="left")
    return [
        Attempts(features(row, shares), row["successes"], row["n"], _predicted(row))
        for row in rows.iter_rows(named=True)
    ]


def _predicted(task: dict[str, Any]) -> float | None:
    """Return the prediction of a row of `tasks` in log-odds, less the drift that it includes."""
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
    reserve: bool = False,
) -> pl.DataFrame:
    """Return `tasks` with the columns of the choice and the prediction of each one.

    Args:
        tasks: what pi_env wrote in an epoch.
        known: attempts of earlier epochs. Without any, the whole choice is by lot.
        settings: how many tasks to attempt, and which share of these to draw by lot.
        curriculum: the target success rate, and how far from it a task may teach.
        seed: of the lot.
        shares: how much of the attempts each domain of the run gets. Where one has too few tasks,
            no other fills its places.
        reserve: whether the tasks that were not chosen are a reserve, in the order in which the
            same choice goes on. Every beginning of it has each domain in its share.
    """
    predicted = _predicted_rows(tasks.filter("valid"), known, settings, shares)
    chooser = Chooser(predicted, shares)
    made = [
        _of_domain(predicted, turns).with_columns(
            turn=(pl.col("reserve_place") + 1) / shares.weights.get(turns.domain, 1.0),
            number=number,
        )
        for number, turns in enumerate(chooser.turns(settings, curriculum, seed))
    ]
    chosen = _with_reserve(pl.concat(made)) if reserve else _without_reserve(pl.concat(made))
    others = tasks.drop(set(chosen.columns) - {"task_id"})
    return others.join(chosen, on="task_id", how="left", maintain_order="left").select(
        tasks.columns
    )


def _predicted_rows(
    tasks: pl.DataFrame, known: Sequence[Attempts], settings: GenerationConfig, shares: Shares
) -> pl.DataFrame:
    """Return the valid `tasks` with their predictions, for each domain by itself.

    A domain without `known` attempts has no predictions.
    """
    model = SuccessModel(known) if known and settings.candidates > 1 else None
    rows = [features(row, shares) for row in tasks.iter_rows(named=True)]
    believed: list[Belief | None] = [None for _ in rows]
    drifts: list[float | None] = [None for _ in rows]
    for domain in shares.names:
        of_domain = [one for one in known if one.features.domain == domain]
        places = [place for place, one in enumerate(rows) if one.domain == domain]
        if model is None or not of_domain or not places:
            continue
        missed = drift(of_domain)
        beliefs = model.predict([rows[place] for place in places], drift=missed)
        for place, belief in zip(places, beliefs, strict=True):
            believed[place], drifts[place] = belief, missed
    return tasks.with_columns(
        predicted_p=_numbers([one and one.mean for one in believed]),
        predicted_sd=_numbers([one and one.deviation for one in believed]),
        predicted_drift=_numbers(drifts),
    )


@dataclass(frozen=True, slots=True)
class DomainTurns:
    """The turns in which a choice takes the tasks of one domain, as places among all of them.

    The epoch attempts those drawn by `lot` and those predicted `near` alpha; the `rest` would
    follow.
    """

    domain: str
    lot: list[int]
    near: list[int]
    rest: list[int]

    def choices(self) -> dict[int, TaskChoice]:
        """Return the choice of each task by its place, those of the rest as a reserve."""
        return (
            dict.fromkeys(self.lot, TaskChoice.RANDOM)
            | dict.fromkeys(self.near, TaskChoice.PREDICTED)
            | dict.fromkeys(self.rest, TaskChoice.RESERVE)
        )


class Chooser:
    """Chooses among tasks by their predictions, for any settings and any number of times."""

    def __init__(self, tasks: pl.DataFrame, shares: Shares = ONE_DOMAIN) -> None:
        """Take valid rows of `tasks` of one epoch, with their predictions."""
        self._shares = shares
        self._families: list[str] = tasks["family"].to_list()
        of_domain = [shares.domain_of(family) for family in self._families]
        self._places = {
            name: [place for place, own in enumerate(of_domain) if own == name]
            for name in shares.names
        }
        self._skills = [
            None if rate is None else above_chance(rate, chance)
            for rate, chance in zip(tasks["predicted_p"], _chances(tasks), strict=True)
        ]

    def turns(
        self, settings: GenerationConfig, curriculum: CurriculumConfig, seed: int
    ) -> list[DomainTurns]:
        """Return the turns of each domain, in the run's order; `seed` is of the lot."""
        split = self._shares.split(settings.tasks)
        found: list[DomainTurns] = []
        for number, (domain, places) in enumerate(self._places.items()):
            skills = [one for place in places if (one := self._skills[place]) is not None]
            made = _turns(
                [self._families[place] for place in places],
                skills if settings.candidates > 1 else [],
                settings.model_copy(update={"tasks": split[domain]}),
                curriculum,
                [seed, number] if domain else seed,
            )
            lot, near, rest = ([places[turn] for turn in turns] for turns in made)
            found.append(DomainTurns(domain, lot, near, rest))
        return found

    def attempted(
        self, settings: GenerationConfig, curriculum: CurriculumConfig, seed: int
    ) -> dict[int, TaskChoice]:
        """Return the choice of each task to attempt, by its place among all of them."""
        turns = self.turns(settings, curriculum, seed)
        made = [pair for one in turns for pair in one.choices().items()]
        return {place: choice for place, choice in made if choice is not TaskChoice.RESERVE}


def _of_domain(tasks: pl.DataFrame, turns: DomainTurns) -> pl.DataFrame:
    """Return the choice, the prediction and the place in the reserve of each task of one domain."""
    choices = turns.choices()
    turn = {place: number for number, place in enumerate(turns.rest)}
    places = sorted(choices)
    return tasks[places].select(
        "task_id",
        pl.Series("choice", [choices[place].value for place in places], dtype=pl.String),
        "predicted_p",
        "predicted_sd",
        "predicted_drift",
        pl.Series("reserve_place", [turn.get(place) for place in places], dtype=pl.Int64),
    )


def _with_reserve(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with places in one reserve of all domains, by `turn` and then `number`."""
    reserve = rows.filter(pl.col("reserve_place").is_not_null()).sort("turn", "number")
    placed = reserve.select("task_id", reserve_place=pl.int_range(pl.len(), dtype=pl.Int64))
    others = rows.drop("reserve_place", "turn", "number")
    return others.join(placed, on="task_id", how="left", maintain_order="left")


def _without_reserve(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows without a reserve: its tasks become NOT_CHOSEN."""
    not_chosen = pl.lit(TaskChoice.NOT_CHOSEN.value)
    choice = pl.when(pl.col("reserve_place").is_null()).then("choice").otherwise(not_chosen)
    no_place = pl.lit(None, pl.Int64)
    return rows.with_columns(choice=choice, reserve_place=no_place).drop("turn", "number")


def _numbers(values: Sequence[float | None]) -> pl.Series:
    return pl.Series(values, dtype=pl.Float64)


def _turns(
    families: Sequence[str],
    predicted: Sequence[float],
    settings: GenerationConfig,
    curriculum: CurriculumConfig,
    seed: int | Sequence[int],
) -> tuple[list[int], list[int], list[int]]:
    """Return the places drawn by lot, those predicted near alpha, and all others in their turn.

    `families` has the family of each written task, `predicted` its skill. Without predictions, the
    epoch's seed draws all tasks and the turns of the others.
    """
    written = len(families)
    count = min(settings.tasks, written)
    by_lot = round(settings.random_share * count) if predicted else count
    drawn: list[int] = np.random.default_rng(seed).permutation(written).tolist()
    lot, others = sorted(drawn[:by_lot]), drawn[by_lot:]
    if predicted:
        rates = {place: predicted[place] for place in sorted(others)}
        turns = families if settings.choose_by == "family" else None
        others = _near(rates, [predicted[place] for place in lot], curriculum, turns)
    near = count - by_lot
    return lot, others[:near], others[near:]


def _near(
    rates: Mapping[int, float],
    lot: Sequence[float],
    curriculum: CurriculumConfig,
    families: Sequence[str] | None,
) -> list[int]:
    """Return the places so that the skills of every beginning are near alpha and average to it.

    The skills drawn by `lot` count in the average.

    Where most of what pi_env writes is too easy, the nearest alone would be too easy on average. So
    each next task comes from the other side of alpha than the mean so far. That holds within the
    band of k_min; beyond it, where a task hardly teaches, the nearest task comes next. With
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
    while below or above:
        too_easy = total > alpha * (len(lot) + len(near))
        side = (below or above) if too_easy else (above or below)
        near.append(side.popleft())
        total += rates[near[-1]]
    return near + order[len(band) :]


def _in_turn(places: Sequence[int], families: Sequence[str]) -> list[int]:
    """Return the places so that the first of each family come first, then the second of each."""
    before = Counter[str]()
    turn: dict[int, int] = {}
    for place in places:
        turn[place] = before[families[place]]
        before[families[place]] += 1
    return sorted(places, key=turn.__getitem__)


def chosen_tasks(tasks: pl.DataFrame) -> pl.DataFrame:
    """Return the valid rows of `tasks` that an epoch attempts, without those of a refill.

    An epoch attempts every task that pi_env did not write: such a row has no choice.
    """
    left = [TaskChoice.NOT_CHOSEN.value, TaskChoice.RESERVE.value]
    return tasks.filter(pl.col("valid") & ~pl.col("choice").fill_null("").is_in(left))


def reserve_tasks(tasks: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `tasks` in the reserve, in the order in which refills attempt them."""
    return tasks.filter(choice=TaskChoice.RESERVE.value).sort("reserve_place")


def written_p_hat(tasks: pl.DataFrame, task_scores: pl.DataFrame) -> float | None:
    """Return the success rate expected over all tasks that pi_env wrote, chosen or not.

    An attempted task counts with its share of successes, any other one with its prediction. Without
    predictions the attempted ones, drawn by lot, stand for all. Without either it is None.
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
