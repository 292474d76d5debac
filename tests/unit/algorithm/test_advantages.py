"""Group-relative advantages.

Invariants: golden numbers by hand, with n - 1 in the deviation and 1e-4 added to it; the
advantages of a group sum to about 0, keep the order of the rewards and do not see a shift; equal
rewards and a group of one give exact zeros, never NaN; NaN is an error with its place.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genenv_core.algorithm.advantages import group_advantages, zero_signal
from genenv_core.algorithm.stats import mean, sample_std
from genenv_core.errors import NumericalError
from tests.mutations import mutation

unit = st.floats(0, 1)
groups = st.lists(unit, min_size=1, max_size=16)


@mutation(
    "deviation with n in the denominator", "genenv_core/algorithm/stats.py",
    "(len(values) - 1))", "len(values))",
)  # fmt: skip
def test_mean_and_deviation_golden() -> None:
    assert mean([1.0, 2.0, 6.0]) == 3.0
    # Deviations -2, -1, 3: squares 4 + 1 + 9 = 14, divided by n - 1 = 2: 7.
    assert sample_std([1.0, 2.0, 6.0]) == pytest.approx(math.sqrt(7), rel=1e-15)
    assert sample_std([5.0]) == 0.0
    assert mean([0.1] * 10) == 0.1  # a plain sum gives 0.09999999999999999


def test_mean_of_nothing_says_so() -> None:
    with pytest.raises(ValueError, match="no values"):
        mean([])


@mutation(
    "advantages without centring", "genenv_core/algorithm/advantages.py",
    "(reward - centre) / divisor", "reward / divisor",
)  # fmt: skip
def test_advantages_golden_three_of_four() -> None:
    # Mean 0.75; squares 3 * 0.0625 + 0.5625 = 0.75, over 3: 0.25; std 0.5; divisor 0.5001.
    expected = [0.25 / 0.5001] * 3 + [-0.75 / 0.5001]
    assert group_advantages([1, 1, 1, 0]) == pytest.approx(expected, rel=1e-12)


def test_without_scaling_only_the_mean_goes() -> None:
    assert group_advantages([1, 1, 1, 0], scale=False) == [0.25, 0.25, 0.25, -0.75]


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.3])
@pytest.mark.parametrize("n", [1, 2, 8])
def test_equal_rewards_and_groups_of_one_give_exact_zeros(
    n: int, reward: float, scale: bool
) -> None:
    assert zero_signal([reward] * n)
    assert group_advantages([reward] * n, scale=scale) == [0.0] * n


def test_equal_means_equal_up_to_float_noise() -> None:
    noisy = [0.1 + 0.2, 0.3]  # 0.30000000000000004 and 0.3
    assert noisy[0] != noisy[1]
    assert zero_signal(noisy)
    assert group_advantages(noisy) == [0.0, 0.0]
    assert not zero_signal([0.3, 0.3 + 1e-6])


@given(groups, st.booleans())
def test_sum_is_zero_and_nothing_is_nan(rewards: list[float], scale: bool) -> None:
    advantages = group_advantages(rewards, scale=scale)
    assert len(advantages) == len(rewards)
    assert all(math.isfinite(value) for value in advantages)
    assert math.fsum(advantages) == pytest.approx(0.0, abs=1e-9)


@given(groups)
def test_no_advantage_is_larger_than_a_group_allows(rewards: list[float]) -> None:
    # With n - 1 in the deviation, |r - mean| / std is at most (n - 1) / sqrt(n).
    n = len(rewards)
    limit = (n - 1) / math.sqrt(n)
    assert all(abs(value) <= limit + 1e-9 for value in group_advantages(rewards))


@given(groups, st.booleans())
def test_order_is_kept(rewards: list[float], scale: bool) -> None:
    pairs = sorted(zip(rewards, group_advantages(rewards, scale=scale), strict=True))
    advantages = [advantage for _, advantage in pairs]
    assert advantages == sorted(advantages)


@given(st.lists(st.integers(0, 8), min_size=2, max_size=16), st.integers(-4, 4))
def test_a_shift_does_not_count(eighths: list[int], shift: int) -> None:
    rewards = [value / 8 for value in eighths]
    assert group_advantages([r + shift for r in rewards]) == pytest.approx(
        group_advantages(rewards), abs=1e-12
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_is_an_error_with_its_place(bad: float) -> None:
    for call in (group_advantages, zero_signal):
        with pytest.raises(NumericalError, match=f"rewards of a group: value 2 is {bad}"):
            call([0.0, 1.0, bad])
