"""The estimate of a success rate before any attempt.

Invariants: on tasks drawn from the model itself it finds rates and strength again, better than the
mean of all tasks does; what attempts at one task share counts once; equal rows give equal bits;
tasks that all succeed or all fail give a finite estimate; a family that was never attempted gets
the estimate of its numbers; words that matter are found, those of one task say nothing; the drift
is what earlier predictions missed, zero without any, and bounded.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from genenv_core.algorithm.success.belief import Belief
from genenv_core.algorithm.success.model import (
    Attempts,
    Features,
    SuccessModel,
    drift,
    log_odds,
)
from tests.mutations import mutation

SUCCESS_MODEL = "genenv_core/algorithm/success/model.py"


def attempted(seed: int, *, strength: float, tasks: int = 600, n: int = 8) -> list[Attempts]:
    """Return attempts at tasks of three families; the rate also falls with their number."""
    rng = np.random.default_rng(seed)
    rows: list[Attempts] = []
    for _ in range(tasks):
        family, number = int(rng.integers(3)), float(rng.normal())
        mean = true_mean(family, number)
        rate = rng.beta(strength * mean, strength * (1 - mean))
        rows.append(Attempts(Features(f"k{family}", (number,)), int(rng.binomial(n, rate)), n))
    return rows


def true_mean(family: int, number: float) -> float:
    return 1 / (1 + np.exp(-(1.5 - 1.5 * family - 0.8 * number)))


@mutation(
    "the strength of what features say is never fitted", SUCCESS_MODEL,
    "self._strength = exp(float(found.x))", "pass",
)  # fmt: skip
@pytest.mark.parametrize("strength", [1.5, 6.0, 40.0])
def test_it_finds_the_model_that_made_the_rows(strength: float) -> None:
    model = SuccessModel(attempted(0, strength=strength))
    # Eight attempts hardly tell 40 from 80.
    assert strength / 2 < model.strength < strength * 2
    asked = [Features(f"k{family}", (x,)) for family in range(3) for x in (-1.0, 0.0, 1.0)]
    for features, estimate in zip(asked, model.predict(asked), strict=True):
        true = true_mean(int(features.family[1]), features.numbers[0])
        assert estimate.mean == pytest.approx(true, abs=0.06)
        assert estimate.strength == model.strength


def test_it_predicts_other_tasks_better_than_their_mean() -> None:
    known, fresh = attempted(1, strength=3), attempted(2, strength=3)
    predicted = np.array([e.mean for e in SuccessModel(known).predict([r.features for r in fresh])])
    share = np.array([row.successes / row.n for row in fresh])
    mean = np.mean([row.successes / row.n for row in known])
    assert np.mean((predicted - share) ** 2) < 0.6 * np.mean((mean - share) ** 2)


def test_equal_rows_give_equal_bits() -> None:
    rows = attempted(4, strength=2, tasks=50)
    asked = [row.features for row in rows]
    assert SuccessModel(rows).predict(asked) == SuccessModel(rows).predict(asked)


@pytest.mark.parametrize("successes", [0, 8])
def test_equal_outcomes_give_a_finite_estimate_near_them(successes: int) -> None:
    rows = [Attempts(Features("k", (1.0,)), successes, 8)] * 20
    (estimate,) = SuccessModel(rows).predict([rows[0].features])
    assert abs(estimate.mean - successes / 8) < 0.03
    assert 0 < estimate.mean < 1


def test_an_unknown_family_gets_the_estimate_of_its_numbers() -> None:
    model = SuccessModel(attempted(5, strength=6))
    easy, hard = model.predict([Features("new", (-2.0,)), Features("new", (2.0,))])
    assert easy.mean > hard.mean + 0.3


def test_a_single_task_is_enough() -> None:
    model = SuccessModel([Attempts(Features("k", (1.0,)), 2, 4)])
    assert model.predict([Features("k", (1.0,))])[0].mean == pytest.approx(0.5)
    assert model.predict([]) == []


def test_no_task_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one task"):
        SuccessModel([])


def worded(text: str, successes: int = 0) -> Attempts:
    return Attempts(Features("k", (1.0,), text), successes, 8)


def test_words_that_matter_are_found() -> None:
    rows = [worded("add 3, then 4", 7), worded("multiply 3 by 4", 1)] * 30
    add, multiply, other = SuccessModel(rows).predict(
        [worded(text).features for text in ("add 4, then 9", "multiply 9 by 4", "divide 9")]
    )
    assert add.mean > 0.75 and multiply.mean < 0.25
    assert multiply.mean < other.mean < add.mean


@mutation(
    "a word that one task alone has counts", SUCCESS_MODEL, "if held[word] > 1", "if held[word] > 0"
)
def test_a_word_of_a_single_task_says_nothing_of_others() -> None:
    rows = [worded("common", 4)] * 20
    plain, odd = SuccessModel([*rows, worded("common rare", 8)]).predict(
        [worded("common").features, worded("common rare").features]
    )
    assert plain == odd


def predicted(rate: float, successes: int, n: int = 8) -> Attempts:
    return Attempts(Features("k"), successes, n, log_odds(rate))


def test_with_the_drift_the_predictions_expect_what_came() -> None:
    rows = [predicted(0.5, 6), predicted(0.2, 3), predicted(0.9, 8)]
    added = drift(rows)
    assert added > 0
    moved = [1 / (1 + np.exp(-(row.predicted + added))) for row in rows if row.predicted]
    moved.append(1 / (1 + np.exp(-added)))  # the rate of one half has log-odds 0
    assert 8 * sum(moved) == pytest.approx(17)


def test_the_drift_of_one_rate_by_hand() -> None:
    rows = [predicted(0.5, 6), predicted(0.5, 6)]
    assert drift(rows) == pytest.approx(np.log(3))
    assert drift([*rows, Attempts(Features("k"), 0, 8)]) == drift(rows)
    assert drift([predicted(0.75, 4)]) == pytest.approx(-np.log(3))


@pytest.mark.parametrize(("successes", "bound"), [(0, -3.0), (8, 3.0)])
def test_the_drift_is_bounded(successes: int, bound: float) -> None:
    assert drift([predicted(0.5, successes)] * 5) == bound


@mutation(
    "rates of extreme log-odds overflow", SUCCESS_MODEL,
    "np.exp(np.minimum(-odds, _LARGEST))", "np.exp(-odds)",
)  # fmt: skip
def test_extreme_predictions_warn_of_nothing() -> None:
    rows = [predicted(0.5, 4), *(Attempts(Features("k"), 4, 8, odds) for odds in (-900.0, 900.0))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert drift(rows) == pytest.approx(0.0, abs=1e-6)


def test_without_predictions_there_is_no_drift() -> None:
    assert drift([]) == drift([Attempts(Features("k"), 3, 8)]) == 0.0


def test_the_drift_moves_every_estimate() -> None:
    model = SuccessModel(attempted(6, strength=3))
    asked = [Features("k0", (0.0,)), Features("k2", (1.0,))]
    for before, after in zip(model.predict(asked), model.predict(asked, drift=0.7), strict=True):
        assert log_odds(after.mean) == pytest.approx(log_odds(before.mean) + 0.7)
        assert after.strength == before.strength


def test_the_deviation_of_a_belief_by_hand() -> None:
    assert Belief(0.8, 4.0).deviation == pytest.approx((0.16 / 5) ** 0.5)
