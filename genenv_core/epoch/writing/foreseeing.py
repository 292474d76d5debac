"""Foresees what another rule of choosing would have shown on the tasks of pi_env in an epoch.

The played rule is the choice itself (`choosing.py`). This module draws it again with other seeds:
the share of draws that attempt a task is the probability of an attempt, exact for the lot. The
other rule is the same code with other settings and the seed of the epoch, as a branch of the run
has. Both read the stored predictions. Settings that change these, or what pi_env writes, have
effects that this module does not foresee.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import polars as pl

from genenv_core.algorithm.chance import above_chance, p_hat
from genenv_core.algorithm.reward import r_env
from genenv_core.algorithm.selection import in_band
from genenv_core.algorithm.success.belief import predicted
from genenv_core.algorithm.success.foreseen import (
    ForeseenMean,
    OtherChoice,
    Outcomes,
    chances_of,
    foreseen_mean,
    moments,
    of_two_groups,
    repeated_variance,
    variance_between,
)
from genenv_core.config.sections.curriculum import CurriculumConfig, GenerationConfig, Level
from genenv_core.domains.shares import Shares
from genenv_core.epoch.attempting.choosing import ONE_DOMAIN, Chooser
from genenv_core.errors import ConfigError
from genenv_core.ids import seed_from
from genenv_core.types import TaskChoice

DRAWS = 200
"""Draws of both rules for the probabilities of attempts: their standard error is at most .035, and
0 for the share by lot."""

LEAST_SUPPORT = 0.9
"""Least share of the other rule's tasks that the played rule could attempt."""

FIRST = (TaskChoice.RANDOM.value, TaskChoice.PREDICTED.value)
"""Choices whose tasks an epoch attempts before any refill."""

MeasureOf = Callable[[int, int, float], float]
"""A measure, from 0 to 1, of k successes in n attempts at a task with a chance of a guess."""


@dataclass(frozen=True, slots=True)
class ChoosingRule:
    """The settings that decide which written tasks an epoch attempts, and their pay."""

    generation: GenerationConfig
    curriculum: CurriculumConfig

    @property
    def written(self) -> int:
        """Return how many valid tasks the rule wants from pi_env."""
        return self.generation.tasks * self.generation.candidates

    def measures(self) -> dict[str, MeasureOf]:
        """Return the foreseen measures by name; R_env and the band only at the level of a task."""
        curriculum = self.curriculum
        alpha, beta, k_min = curriculum.alpha, curriculum.beta, curriculum.k_min
        found: dict[str, MeasureOf] = {
            "p_hat": lambda k, n, chance: p_hat(k, n),
            "signal": lambda k, n, chance: float(0 < k < n),
        }
        if curriculum.level is Level.TASK:
            found["kept"] = lambda k, n, chance: float(
                in_band(above_chance(p_hat(k, n), chance), alpha=alpha, k_min=k_min)
            )
            found["r_env"] = lambda k, n, chance: r_env(
                above_chance(p_hat(k, n), chance), alpha=alpha, beta=beta
            )
        return found


@dataclass(frozen=True, slots=True)
class LoggedEpoch:
    """A played epoch.

    `tasks`: the valid rows of `tasks` that pi_env wrote in it, in order. `attempts`: tasks of this
    and earlier epochs with their `successes` and `n`, each with columns of `tasks`. `seed`: of the
    choice. `n`: attempts at each task.
    """

    epoch: int
    tasks: pl.DataFrame
    attempts: pl.DataFrame
    rule: ChoosingRule
    seed: int
    n: int
    shares: Shares = ONE_DOMAIN


@dataclass(frozen=True, slots=True)
class ForeseenMeasure:
    """One measure: the mean that the epoch played, and the foreseen one."""

    measure: str
    played: float
    foreseen: ForeseenMean


@dataclass(frozen=True, slots=True)
class ForeseenEpoch:
    """What another rule would have shown in one epoch.

    The epoch `attempted` so many tasks. Of the `chosen` tasks of the other rule, `shared` are among
    them, and `support` is the share that the played rule could attempt.
    """

    epoch: int
    written: int
    attempted: int
    by_lot: int
    chosen: int
    shared: int
    support: float
    measures: Sequence[ForeseenMeasure]


def foresee(logged: LoggedEpoch, other: ChoosingRule, *, draws: int = DRAWS) -> ForeseenEpoch:
    """Return what another rule would have shown in an epoch; deterministic.

    Raises ConfigError where the epoch had no predictions, where its settings do not choose what it
    chose, where the other rule needs more tasks than pi_env wrote, and below `LEAST_SUPPORT`.
    """
    _check(logged, other)
    attempts = logged.attempts.filter(
        pl.col("choice").is_in(FIRST) & pl.col("predicted_p").is_not_null()
    )
    choice = other_choice(logged, other, attempts, draws=draws)
    if choice.support < LEAST_SUPPORT:
        raise ConfigError(
            f"epoch {logged.epoch}: the rule that was played (generation.random_share "
            f"{logged.rule.generation.random_share:g}) could not attempt "
            f"{choice.unsupported.sum()} of the {choice.chosen.sum()} tasks that the other rule "
            f"attempts, so nothing is known of them; at most {1 - LEAST_SUPPORT:.0%} may be so. "
            "Play a run with generation.random_share above 0, or a branch with the other rule"
        )
    played = logged.rule.measures()
    of_epoch = attempts.filter(pl.col("epoch") == logged.epoch)
    counted = of_epoch.select("successes", "n", pl.col("chance").fill_null(0.0)).rows()
    history, expected = _Attempted.of(attempts), _Expected(logged, attempts, choice)
    found = [
        ForeseenMeasure(
            name,
            sum(played[name](*row) for row in counted) / len(counted),
            foreseen_mean(choice, expected.outcomes(measure), history.missed(measure)),
        )
        for name, measure in other.measures().items()
    ]
    return ForeseenEpoch(
        logged.epoch,
        logged.tasks.height,
        of_epoch.height,
        choice.lot,
        int(choice.chosen.sum()),
        int(choice.shared.sum()),
        choice.support,
        found,
    )


def other_choice(
    logged: LoggedEpoch, other: ChoosingRule, attempts: pl.DataFrame, *, draws: int = DRAWS
) -> OtherChoice:
    """Return what the other rule attempts, beside the played one, with all probabilities."""
    count = logged.tasks.height
    within = _written_for(logged, other)
    pair = (
        _Drawing(Chooser(logged.tasks, logged.shares), list(range(count)), logged.rule, count),
        _Drawing(Chooser(logged.tasks[within], logged.shares), within, other, count),
    )
    lots, nears, newly = (np.zeros(count) for _ in range(3))
    for draw in range(draws):
        seed = seed_from("what-if", draw)
        lot, near = pair[0].drawn(seed)
        lots, nears = lots + lot, nears + near
        newly += np.logical_or(*pair[1].drawn(seed)) & ~(lot | near)
    lot, _ = pair[0].drawn(logged.seed)
    by_lot = _shares_by_lot(logged, lot)
    later = np.divide(nears, draws - lots, out=np.zeros(count), where=lots < draws)
    seen = set(attempts.filter(pl.col("epoch") == logged.epoch)["task_id"])
    return OtherChoice(
        seen=np.array([task in seen for task in logged.tasks["task_id"]], dtype=np.bool_),
        chosen=np.logical_or(*pair[1].drawn(logged.seed)),
        probability=by_lot + (1 - by_lot) * later,
        newly=newly / draws,
        lot=int(lot.sum()),
    )


@dataclass(frozen=True, slots=True)
class _Drawing:
    """A rule to draw many times; `places` are those of its tasks among `count`."""

    chooser: Chooser
    places: list[int]
    rule: ChoosingRule
    count: int

    def drawn(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return which tasks the rule takes by lot and which by prediction, shape (count,) each."""
        lot, near = np.zeros((2, self.count), dtype=np.bool_)
        made = self.chooser.attempted(self.rule.generation, self.rule.curriculum, seed)
        for place, choice in made.items():
            (lot if choice is TaskChoice.RANDOM else near)[self.places[place]] = True
        return lot, near


def _shares_by_lot(logged: LoggedEpoch, lot: np.ndarray) -> np.ndarray:
    """Return each task's probability to be drawn by lot: the drawn share of its domain's tasks."""
    names = np.array([logged.shares.domain_of(family) for family in logged.tasks["family"]])
    return np.array([lot[names == name].mean() for name in names])


def _written_for(logged: LoggedEpoch, other: ChoosingRule) -> list[int]:
    """Return the places of the tasks that pi_env would have written for the other rule.

    It writes the same texts in the same order, until each domain has its share of them.
    """
    if other.written >= logged.rule.written:
        return list(range(logged.tasks.height))
    left = logged.shares.split(other.written)
    places: list[int] = []
    for place, family in enumerate(logged.tasks["family"]):
        domain = logged.shares.domain_of(family)
        if left[domain]:
            left[domain] -= 1
            places.append(place)
    return places


def _check(logged: LoggedEpoch, other: ChoosingRule) -> None:
    """Raise ConfigError for an epoch or another rule that allows no foresight."""
    if logged.tasks["predicted_p"].null_count() == logged.tasks.height:
        raise ConfigError(
            f"epoch {logged.epoch} had no predictions, so every rule draws its tasks by lot: name "
            "an epoch of a run with generation.candidates above 1, after its first"
        )
    if other.written > logged.rule.written:
        raise ConfigError(
            f"generation.tasks {other.generation.tasks} x candidates "
            f"{other.generation.candidates} needs more tasks than the "
            f"{logged.rule.written} that the run asked pi_env for: what was never written cannot "
            "be foreseen"
        )
    rule, chooser = logged.rule, Chooser(logged.tasks, logged.shares)
    again = chooser.attempted(rule.generation, rule.curriculum, logged.seed)
    stored = {
        place: choice for place, choice in enumerate(logged.tasks["choice"]) if choice in FIRST
    }
    if again != stored:
        raise ConfigError(
            f"epoch {logged.epoch}: this genenv does not choose what was chosen there with the "
            "run's settings, so how probable an attempt was is not known: another version wrote "
            "it, or it is of the run that this one branched from; name that run"
        )


@dataclass(frozen=True, slots=True)
class _Attempted:
    """Rows of attempts, with the predicted probability of each number of successes.

    `chances` has shape (rows, largest n + 1). `counts` holds the successes, attempts and chance of
    a guess of each row.
    """

    chances: np.ndarray
    counts: list[tuple[int, int, float]]
    cells: list[str]
    epochs: list[str]
    lot: np.ndarray

    @classmethod
    def of(cls, attempts: pl.DataFrame) -> _Attempted:
        """Read rows of attempts, with columns of `tasks`."""
        rows = attempts.with_columns(pl.col("chance").fill_null(0.0))
        counts = rows.select("successes", "n", "chance").rows()
        beliefs = [predicted(*pair) for pair in rows.select("predicted_p", "predicted_sd").rows()]
        ns = [n for _, n, _ in counts]
        return cls(
            chances_of(beliefs, ns, max(ns) + 1),
            counts,
            [f"{epoch} {family}" for epoch, family in rows.select("epoch", "family").rows()],
            [f"{epoch}" for epoch in rows["epoch"]],
            (rows["choice"] == TaskChoice.RANDOM.value).to_numpy(),
        )

    def missed(self, measure: MeasureOf) -> float:
        """Return the variance of what predictions missed.

        It is the larger of two: that between the families of each epoch, and that between epochs
        among tasks drawn by lot.
        """
        values = np.zeros_like(self.chances)
        for place, (_, n, chance) in enumerate(self.counts):
            values[place, : n + 1] = _values(measure, n, chance)
        expected, variances = moments(self.chances, values)
        seen = np.array([values[place, k] for place, (k, _, _) in enumerate(self.counts)])
        residuals, lot = seen - expected, self.lot
        epochs = [epoch for epoch, drawn in zip(self.epochs, lot, strict=True) if drawn]
        return max(
            variance_between(residuals, variances, self.cells),
            variance_between(residuals[lot], variances[lot], epochs),
        )


class _Expected:
    """The expectations about an epoch's tasks, before and after its attempts, by any measure."""

    def __init__(self, logged: LoggedEpoch, attempts: pl.DataFrame, choice: OtherChoice) -> None:
        tasks, n = logged.tasks, logged.n
        self._n = n
        self._guesses: list[float] = tasks["chance"].fill_null(0.0).to_list()
        beliefs = [predicted(*pair) for pair in tasks.select("predicted_p", "predicted_sd").rows()]
        self._chances = chances_of(beliefs, [n] * len(beliefs), n + 1)
        of_epoch = attempts.filter(pl.col("epoch") == logged.epoch)
        by_task = {
            task: (k, of) for task, k, of in of_epoch.select("task_id", "successes", "n").rows()
        }
        self._counts = {
            place: by_task[task] for place, task in enumerate(tasks["task_id"]) if task in by_task
        }
        self._groups = {
            place: of_two_groups(beliefs[place].after(*self._counts[place]), n)
            for place in np.flatnonzero(choice.shared).tolist()
        }

    def outcomes(self, measure: MeasureOf) -> Outcomes:
        """Return the outcomes by one measure."""
        values = np.array([_values(measure, self._n, chance) for chance in self._guesses])
        seen, repeated = np.zeros((2, len(values)))
        for place, (k, n) in self._counts.items():
            seen[place] = measure(k, n, self._guesses[place])
        for place, groups in self._groups.items():
            repeated[place] = repeated_variance(groups, values[place])
        return Outcomes(seen, *moments(self._chances, values), repeated)


@lru_cache(maxsize=512)
def _values(measure: MeasureOf, n: int, chance: float) -> tuple[float, ...]:
    """Return a measure of 0, 1, ... n successes in n attempts."""
    return tuple(measure(k, n, chance) for k in range(n + 1))
