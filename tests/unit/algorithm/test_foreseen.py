"""The mean that another choice of tasks would have shown, from the outcomes of the played one.

Invariants: tasks of both rules count with their outcomes; the others with their expectation, moved
by what it missed where the other rule alone takes tasks, each weighed by its probabilities; few or
noisy misses move it less; attempts are made anew, so their luck is in the interval; a task without
a chance under the played rule allows for any outcome; what misses vary by is beyond their noise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from genenv_core.algorithm.success.belief import UNIFORM, Belief
from genenv_core.algorithm.success.foreseen import (
    OtherChoice,
    Outcomes,
    chances_of,
    foreseen_mean,
    moments,
    of_two_groups,
    repeated_variance,
    variance_between,
)
from tests.mutations import mutation

FORESEEN = "genenv_core/algorithm/success/foreseen.py"

OUTCOMES = Outcomes(
    seen=np.array([1.0, 0.5, 0.75, 0.0]),
    expected=np.array([0.5, 0.5, 0.5, 0.25]),
    variance=np.full(4, 0.04),
    repeated=np.full(4, 0.01),
)


def choice(**more: Any) -> OtherChoice:
    """Tasks 0 to 2 were seen, 2 by lot; the other rule takes 0 and 3."""
    values: dict[str, Any] = {
        "seen": np.array([True, True, True, False]),
        "chosen": np.array([True, False, False, True]),
        "probability": np.array([1.0, 1.0, 0.25, 0.25]),
        "newly": np.array([0.0, 0.0, 0.5, 0.5]),
        "lot": 3,
    }
    return OtherChoice(**(values | more))


@mutation("what expectations missed moves nothing", FORESEEN, "trust = missed /", "trust = 0 /")
@mutation(
    "the luck of new attempts is left out",
    FORESEEN,
    "2 * float(outcomes.repeated[shared].sum())",
    "float(outcomes.repeated[shared].sum())",
)
@mutation(
    "an interval as if all of the noise were known",
    FORESEEN,
    "missed * (1 - trust)",
    "missed * 0",
)
@mutation("a normal quantile for a few tasks by lot", FORESEEN, "choice.lot if lone", "999 if lone")
def test_golden_numbers() -> None:
    found = foreseen_mean(choice(), OUTCOMES, missed=0.04)
    # Task 2 alone stands for task 3: it was .25 better than expected, trusted by .04 / (.04 + .04).
    assert found.value == pytest.approx((1.0 + 0.25 + 0.5 * 0.25) / 2)
    half = stats.t.ppf(0.975, 2) * math.sqrt(2 * 0.01 + 0.04 + 0.04 * 0.5) / 2
    assert found.low == pytest.approx(max(0.0, found.value - half))
    assert foreseen_mean(choice(lot=200), OUTCOMES, 0.04).high == pytest.approx(
        found.value + stats.t.ppf(0.975, 199) * math.sqrt(0.08) / 2
    )


def test_only_expectations_count_where_they_miss_nothing() -> None:
    assert foreseen_mean(choice(), OUTCOMES, missed=0.0).value == pytest.approx((1 + 0.25) / 2)


@mutation(
    "all that was seen stands for the unseen alike",
    FORESEEN,
    "self.newly, self.probability, out",
    "self.newly > 0, 1.0, out",
)
def test_weights_are_probabilities_of_the_other_rule_over_those_of_the_played_one() -> None:
    newly = np.array([0.0, 0.125, 0.5, 0.5])
    assert choice(newly=newly).weights.tolist() == [0.0, 0.125, 2.0, 0.0]


@mutation(
    "what had no chance is foreseen as if it had",
    FORESEEN,
    "max(0.0, value - half - below), min(1.0, value + half + above)",
    "max(0.0, value - half), min(1.0, value + half)",
)
def test_what_had_no_chance_may_come_out_in_any_way() -> None:
    never = choice(probability=np.array([1.0, 1.0, 1.0, 0.0]), newly=np.array([0, 0, 0, 1.0]))
    quiet = Outcomes(OUTCOMES.seen, OUTCOMES.expected, np.zeros(4), np.zeros(4))
    found = foreseen_mean(never, quiet, missed=0.0)
    assert never.support == 0.5
    assert (found.low, found.high) == (0.5, 1.0)  # task 3 at 0, and at 1


def test_the_same_choice_is_as_uncertain_as_its_attempts() -> None:
    same = choice(chosen=np.array([True, True, True, False]), newly=np.zeros(4), lot=0)
    found = foreseen_mean(same, OUTCOMES, missed=1.0)
    assert found.value == pytest.approx(0.75)
    half = stats.t.ppf(0.975, 2) * math.sqrt(6 * 0.01) / 3
    assert found.low == pytest.approx(0.75 - half)
    with pytest.raises(ValueError, match="attempts no task"):
        foreseen_mean(choice(chosen=np.zeros(4, dtype=bool)), OUTCOMES, 0.0)


@mutation("luck counts as a miss", FORESEEN, "- len(size)", "- 0")
def test_what_misses_vary_by() -> None:
    cells = [f"{place // 4}" for place in range(400)]
    rng = np.random.default_rng(0)
    luck = rng.normal(0, 0.5, 400)
    variances = np.full(400, 0.25)
    assert variance_between(luck, variances, cells) < 0.02
    shifted = luck + np.repeat(rng.normal(0, 0.6, 100), 4)
    assert variance_between(shifted, variances, cells) == pytest.approx(0.36, abs=0.12)
    assert variance_between(np.zeros(0), np.zeros(0), []) == 0.0


SHARES = np.arange(9) / 8


def test_moments_of_a_measure() -> None:
    belief = Belief(0.3, 5.0)
    chances = chances_of([UNIFORM, belief], [2, 8], 9)
    values = np.array([[0.0, 0.5, 1.0, *[9.0] * 6], SHARES])
    means, variances = moments(chances, values)
    known = stats.betabinom(8, belief.a, belief.b)
    assert means.tolist() == pytest.approx([0.5, known.mean() / 8])
    assert variances.tolist() == pytest.approx([1 / 6, known.var() / 64])


@mutation(
    "two groups at one task are foreseen as of two tasks",
    FORESEEN,
    "successes(belief.after(k, n), n)",
    "successes(belief, n)",
)
def test_variance_of_repeated_attempts() -> None:
    # Of k/n it is E[p (1 - p)] / n.
    groups = of_two_groups(Belief(0.3, 5.0), 8)
    assert groups.sum() == pytest.approx(1.0)
    assert np.allclose(groups, groups.T)
    assert repeated_variance(groups, SHARES) == pytest.approx(0.3 * 0.7 * 5 / 6 / 8)
    certain = of_two_groups(Belief(0.5, 1e9), 8)
    assert repeated_variance(certain, SHARES) == pytest.approx(0.25 / 8, rel=1e-3)
