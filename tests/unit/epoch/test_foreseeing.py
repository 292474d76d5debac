"""Another rule of choosing on the tasks of an epoch, foreseen by the product's own choice.

Invariants: the probability of an attempt is what the played rule gives, exact for the lot; the
other rule chooses what `choose` chooses with its settings, among the tasks that would have been
written for it; means are of its tasks, by its settings; nothing is foreseen where nothing was
predicted or written, where the settings choose other tasks than were chosen, and where too many
tasks had no chance.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from genenv_core.config.sections.curriculum import CurriculumConfig, Level
from genenv_core.domains.shares import Shares
from genenv_core.epoch.attempting.choosing import Chooser, choose, chosen_tasks
from genenv_core.epoch.writing.foreseeing import (
    ChoosingRule,
    foresee,
    other_choice,
)
from genenv_core.errors import ConfigError
from tests.mutations import mutation
from tests.unit.epoch.builders_foreseen import OTHERS, PLAYED, N, epoch_of, logged, rule

FORESEEING = "genenv_core/epoch/writing/foreseeing.py"


@pytest.mark.parametrize("other", OTHERS)
@mutation(
    "the other rule chooses by the played settings",
    FORESEEING,
    "self.chooser.attempted(self.rule.generation, self.rule.curriculum, seed)",
    "self.chooser.attempted(GenerationConfig(tasks=30), self.rule.curriculum, seed)",
    by="[other0]",
)
@mutation(
    "the other rule chooses among tasks that were not written for it",
    FORESEEING,
    "if other.written >= logged.rule.written:",
    "if True:",
    by="[other4]",
)
def test_the_other_rule_is_the_products_own_choice(other: ChoosingRule) -> None:
    epoch, _ = epoch_of(3)
    found = other_choice(epoch, other, epoch.attempts, draws=1)
    written = epoch.tasks.head(other.written)
    # What `choose` chooses by its own predictions it chooses by the stored ones.
    again = Chooser(written).turns(other.generation, other.curriculum, epoch.seed)
    places = {place for one in again for place in (*one.lot, *one.near)}
    assert set(np.flatnonzero(found.chosen).tolist()) == places
    assert len(places) == other.generation.tasks


def test_without_predictions_to_go_by_one_candidate_is_drawn_by_lot() -> None:
    epoch, _ = epoch_of(3)
    found = other_choice(epoch, rule(candidates=1), epoch.attempts, draws=1)
    assert np.flatnonzero(found.chosen).tolist() == list(range(30))
    by_lot = choose(
        epoch.tasks.head(30), [], settings=rule(candidates=1).generation,
        curriculum=PLAYED.curriculum, seed=epoch.seed,
    )  # fmt: skip
    assert chosen_tasks(by_lot).height == 30


@mutation(
    "what is near alpha was as improbable as the rest",
    FORESEEING,
    "probability=by_lot + (1 - by_lot) * later",
    "probability=by_lot",
)
def test_probabilities_of_attempts() -> None:
    epoch, _ = epoch_of(5)
    found = other_choice(epoch, rule(random_share=1.0), epoch.attempts, draws=200)
    assert found.lot == 6
    assert found.probability.min() == pytest.approx(6 / 90)
    assert found.probability.sum() == pytest.approx(30, abs=0.5)
    assert found.probability[found.seen].mean() > 0.7
    # The other rule draws 30 of 90; those of the lot, the first of these, are shared.
    expected = (1 - found.probability).sum() / 3
    assert found.newly.sum() == pytest.approx(expected, rel=0.15)


def test_shares_by_lot_are_those_of_a_domain() -> None:
    epoch, _ = epoch_of(5)
    shares = Shares({"one": 2.0, "two": 1.0})
    names = ["one/a" if place % 3 else "two/a" for place in range(90)]
    rng = np.random.default_rng(0)
    tasks = epoch.tasks.with_columns(family=pl.Series(names))
    turns = Chooser(tasks, shares).turns(PLAYED.generation, PLAYED.curriculum, 5)
    assert [(one.domain, len(one.lot), len(one.near)) for one in turns] == [
        ("one", 4, 16), ("two", 2, 8),
    ]  # fmt: skip
    choices = {place: "random" for one in turns for place in one.lot}
    choices |= {place: "predicted" for one in turns for place in one.near}
    stored = [choices.get(place, "not_chosen") for place in range(90)]
    tasks = tasks.with_columns(choice=pl.Series(stored))
    attempts = tasks.filter(pl.col("choice") != "not_chosen").with_columns(
        successes=pl.Series(rng.integers(0, N + 1, 30)), n=pl.lit(N)
    )
    both = replace(epoch, tasks=tasks, attempts=attempts, shares=shares)
    found = foresee(both, rule(tasks=15), draws=20)
    assert (found.chosen, found.attempted, found.support) == (15, 30, 1.0)


def test_means_are_of_the_other_rules_settings() -> None:
    epoch, _ = epoch_of(7)
    same = {one.measure: one for one in foresee(epoch, PLAYED, draws=5).measures}
    assert list(same) == ["p_hat", "signal", "kept", "r_env"]
    for one in same.values():
        assert one.foreseen.value == pytest.approx(one.played)
    rated = (epoch.attempts["successes"].to_numpy() / N - 0.5) ** 2
    assert same["r_env"].played == pytest.approx(float(np.exp(-8 * rated).mean()))
    paid = replace(PLAYED, curriculum=CurriculumConfig(alpha=0.5, beta=2.0, k_min=0.4))
    other = {one.measure: one for one in foresee(epoch, paid, draws=5).measures}
    assert other["r_env"].played == same["r_env"].played
    assert other["r_env"].foreseen.value == pytest.approx(float(np.exp(-2 * rated).mean()))
    batch = replace(PLAYED, curriculum=CurriculumConfig(level=Level.BATCH))
    found = foresee(replace(epoch, rule=batch), batch, draws=5)
    assert [one.measure for one in found.measures] == ["p_hat", "signal"]


def test_what_is_foreseen_is_the_same_again() -> None:
    epoch, _ = epoch_of(8)
    assert foresee(epoch, OTHERS[0], draws=5) == foresee(epoch, OTHERS[0], draws=5)


@mutation(
    "a choice is foreseen that could not be seen",
    FORESEEING,
    "choice.support < LEAST_SUPPORT",
    "choice.support < 0",
)
def test_too_many_tasks_without_a_chance_are_refused() -> None:
    epoch, truth = epoch_of(9)
    played = rule(random_share=0.0)
    never = logged(epoch.tasks, truth, 9, played, np.random.default_rng(9))
    with pytest.raises(ConfigError, match=r"random_share 0\) could not attempt \d+ of the 30"):
        foresee(never, rule(random_share=1.0), draws=5)
    assert foresee(never, rule(random_share=0.0, tasks=29), draws=5).support >= 0.9


@mutation(
    "what another version chose is foreseen too", FORESEEING, "if again != stored:", "if False:"
)
def test_what_nothing_can_be_foreseen_of_is_refused() -> None:
    epoch, _ = epoch_of(10)
    with pytest.raises(ConfigError, match="does not choose what was chosen"):
        foresee(replace(epoch, seed=11), OTHERS[0])
    with pytest.raises(ConfigError, match="tasks 30 x candidates 4 needs more tasks than the 90"):
        foresee(epoch, rule(candidates=4))
    blank = epoch.tasks.with_columns(predicted_p=pl.lit(None, pl.Float64))
    with pytest.raises(ConfigError, match="epoch 2 had no predictions"):
        foresee(replace(epoch, tasks=blank), OTHERS[0])
