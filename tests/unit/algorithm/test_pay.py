"""What pi_env is paid for a task.

Invariants: golden numbers by hand; every rule pays from 0 to 1; alpha pays the stored R_env, and
the others what a draw of rates from the belief gives on average; a task that is surely all right or
all wrong earns next to nothing, and without chance right and wrong are alike; more attempts with
the same share move pay towards that of the share; NaN and impossible beliefs are errors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import betabinom

from genenv_core.algorithm.pay.learnability import learnability
from genenv_core.algorithm.pay.rules import PaidTask, pays
from genenv_core.algorithm.success.belief import UNIFORM, Belief, predicted
from genenv_core.algorithm.success.signal import signal, successes
from genenv_core.config.sections.updates import PayRule
from genenv_core.errors import NumericalError
from tests.mutations import mutation

BELIEF = "genenv_core/algorithm/success/belief.py"
LEARNABILITY = "genenv_core/algorithm/pay/learnability.py"
SIGNAL = "genenv_core/algorithm/success/signal.py"
PAYS = "genenv_core/algorithm/pay/rules.py"

RULES: tuple[PayRule, ...] = ("alpha", "learnability", "signal")


def beta(a: float, b: float) -> Belief:
    """Return Beta(a, b)."""
    return Belief(a / (a + b), a + b)


shapes = st.floats(0.05, 500)
beliefs = st.builds(beta, shapes, shapes)
counts = st.integers(1, 16).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@mutation(
    "a belief is spread too far", BELIEF,
    "mean * (1 - mean) / deviation**2 - 1", "mean * (1 - mean) / deviation**2",
)  # fmt: skip
@mutation("a failure counts as a success", BELIEF, "self.a + successes", "self.a + n")
@mutation("attempts make no belief surer", BELIEF, "self.strength + n", "self.strength")
def test_a_belief_golden() -> None:
    # Strength .25 / .05 - 1 = 4, so Beta(2, 2); with 3 of 4 Beta(5, 3), variance 15 / (64 * 9).
    before = predicted(0.5, math.sqrt(0.05))
    assert (before.a, before.b) == pytest.approx((2, 2), rel=1e-12)
    after = before.after(3, 4)
    assert (after.a, after.b) == pytest.approx((5, 3), rel=1e-12)
    assert (after.mean, after.variance) == pytest.approx((0.625, 15 / 576), rel=1e-12)
    assert predicted(None, None) == UNIFORM == beta(1, 1)


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 0.1), (1.0, 0.1), (0.5, 0.0), (0.5, 0.5)])
def test_a_belief_that_no_beta_distribution_has(mean: float, deviation: float) -> None:
    with pytest.raises(ValueError, match=f"mean {mean:g} and deviation {deviation:g}"):
        predicted(mean, deviation)
    with pytest.raises(ValueError, match="got 5 of 4"):
        UNIFORM.after(5, 4)


@mutation(
    "learnability forgets what is not known", LEARNABILITY,
    "mean * (1 - mean) - variance - chance", "mean * (1 - mean) - chance",
)  # fmt: skip
@mutation(
    "learnability is of success, not of skill", LEARNABILITY,
    "- variance - chance * (1 - mean)", "- variance",
)  # fmt: skip
def test_learnability_golden() -> None:
    # E[p (1 - p)] = 5 * 3 / (8 * 9) = 15/72, times 4. With chance 1/4: less 3/32, over 9/16.
    assert learnability(beta(5, 3), 0.0) == pytest.approx(5 / 6, rel=1e-12)
    assert learnability(beta(5, 3), 0.25) == pytest.approx(22 / 27, rel=1e-12)
    assert learnability(beta(1, 9), 0.5) == 0.0
    with pytest.raises(ValueError, match="below 1, not 1"):
        learnability(UNIFORM, 1.0)


@mutation(
    "signal is a probability where advantages are not divided", SIGNAL,
    "scale=scale))\n        for k", "scale=True))\n        for k",
)  # fmt: skip
@mutation("signal is not a share of the largest norm", SIGNAL, " / max(norms)", "")
def test_signal_golden() -> None:
    # Uniform: each k of 0 to 4 has 1/5. Undivided norms sqrt(k (4 - k) / 4): .866, 1, .866.
    assert signal(UNIFORM, 4, scale=False) == pytest.approx((1 + math.sqrt(3)) / 5, rel=1e-12)
    # Divided, groups with signal are alike, up to the 1e-4 beside the deviation.
    assert signal(UNIFORM, 4, scale=True) == pytest.approx(3 / 5, abs=1e-4)
    # One success of two with 2 * 5 * 3 / (8 * 9).
    assert signal(beta(5, 3), 2, scale=False) == pytest.approx(30 / 72, rel=1e-12)
    # Undivided and of 4 attempts, the norm is 1 at most: of 16, it would be 2.
    assert signal(beta(1e6, 1e6), 16, scale=False) == pytest.approx(0.968, abs=1e-3)
    assert signal(UNIFORM, 1, scale=True) == 0.0


@given(beliefs, st.integers(1, 64))
def test_successes_have_the_probabilities_of_scipy(belief: Belief, n: int) -> None:
    expected: Any = betabinom.pmf(range(n + 1), n, belief.a, belief.b)
    assert successes(belief, n) == pytest.approx(list(expected), rel=1e-6, abs=1e-12)


def test_a_group_whose_failure_is_too_rare_for_a_float_has_its_chances() -> None:
    surest = successes(beta(999.0, 1.0), 1024)
    assert surest[0] == 0.0 and math.fsum(surest) == pytest.approx(1, rel=1e-9)


@given(beliefs, counts, st.floats(0, 1), st.floats(0, 0.9), st.booleans())
def test_every_rule_pays_from_0_to_1(
    before: Belief, count: tuple[int, int], r_env: float, chance: float, scale: bool
) -> None:
    task = PaidTask(r_env, *count, chance, before)
    for rule in RULES:
        (paid,) = pays(rule, [task], scale=scale)
        assert 0 <= paid <= 1
    assert pays("alpha", [task], scale=scale) == [r_env]


@given(shapes, shapes, st.integers(2, 16), st.booleans())
def test_right_and_wrong_are_alike_without_chance(a: float, b: float, n: int, scale: bool) -> None:
    one, other = beta(a, b), beta(b, a)
    assert learnability(one, 0.0) == pytest.approx(learnability(other, 0.0), abs=1e-9)
    assert signal(one, n, scale=scale) == pytest.approx(signal(other, n, scale=scale), abs=1e-9)


@pytest.mark.parametrize("belief", [beta(5, 3), beta(0.4, 2.2), beta(40, 12)])
def test_pay_is_the_mean_over_rates_drawn_from_the_belief(belief: Belief) -> None:
    rng = np.random.default_rng(0)
    rates: Any = rng.beta(belief.a, belief.b, 200_000)
    assert learnability(belief, 0.0) == pytest.approx((4 * rates * (1 - rates)).mean(), abs=0.005)
    k: Any = rng.binomial(8, rates)
    norms = np.sqrt(k * (8 - k) / 8)
    assert signal(belief, 8, scale=False) == pytest.approx(norms.mean() / math.sqrt(2), abs=0.005)
    mixed = ((k > 0) & (k < 8)).mean()
    assert signal(belief, 8, scale=True) == pytest.approx(mixed, abs=0.005)


@mutation("pay ignores the attempts", PAYS, "task.successes, task.n)", "0, 1)")
@mutation(
    "learnability and signal change places", PAYS,
    'if rule == "learnability":', 'if rule == "signal":',
)  # fmt: skip
def test_the_rule_that_is_chosen_pays() -> None:
    before = beta(2, 2)
    hard, even = PaidTask(0.1, 0, 8, 0.0, before), PaidTask(1.0, 4, 8, 0.0, before)
    # Beta(2, 10) and Beta(6, 6): 4 * 20 / (12 * 13), 4 * 36 / (12 * 13).
    assert pays("learnability", [hard, even], scale=True) == pytest.approx([80 / 156, 144 / 156])
    assert pays("signal", [hard, even], scale=False) == [
        signal(beta(2, 10), 8, scale=False), signal(beta(6, 6), 8, scale=False)
    ]  # fmt: skip
    assert pays("alpha", [hard, even], scale=True) == [0.1, 1.0]


@given(st.floats(0.05, 0.95))
def test_with_many_attempts_pay_is_that_of_the_rate(rate: float) -> None:
    sure = UNIFORM.after(round(rate * 10**7), 10**7)
    assert learnability(sure, 0.0) == pytest.approx(4 * rate * (1 - rate), abs=1e-4)


def test_nan_is_an_error_with_its_place() -> None:
    with pytest.raises(NumericalError, match=r"predicted\(mean, deviation\): value 0 is nan"):
        predicted(math.nan, 0.1)
    with pytest.raises(NumericalError, match=r"learnability\(belief, chance\): value 0 is nan"):
        learnability(Belief(math.nan, 2.0), 0.0)
    with pytest.raises(NumericalError, match=r"successes\(belief, n\): value 0 is nan"):
        signal(Belief(math.nan, 2.0), 4, scale=True)
