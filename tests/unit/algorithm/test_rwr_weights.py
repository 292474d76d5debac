"""Weights of the reward-weighted regression.

Invariants: golden numbers by hand; normalised weights have mean 1, are positive and ordered like
the rewards, and agree with the raw ones up to one factor; lambda 0 and equal rewards weigh all
rows alike; steps grow with the rows up to their limit; no lambda that the configuration allows
overflows; NaN is an error with its place.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genenv_core.algorithm.rwr import normalised_weights, raw_weight, step_count
from genenv_core.errors import NumericalError

rewards_ = st.lists(st.floats(0, 1), min_size=1, max_size=32)
lambdas = st.floats(0, 100)


def test_raw_weight_golden() -> None:
    assert raw_weight(1.0, lambda_=1.0) == pytest.approx(math.e, rel=1e-15)
    assert raw_weight(0.5, lambda_=2.0) == pytest.approx(2.718281828459045, rel=1e-15)
    assert raw_weight(0.7, lambda_=0.0) == 1.0


def test_normalised_golden() -> None:
    # lambda ln 3, rewards 0 and 1: raw 1 and 3, mean 2, normalised 1/2 and 3/2.
    assert normalised_weights([0.0, 1.0], lambda_=math.log(3)) == pytest.approx([0.5, 1.5])
    # lambda 1, rewards 1 and e^-1 (k/n of 1/2 and of 0 or 1): raw e and e^0.36787944 =
    # 2.71828183 and 1.44466786, mean 2.08147485, normalised 1.30594028 and 0.69405972.
    assert normalised_weights([1.0, math.exp(-1)], lambda_=1.0) == pytest.approx(
        [1.30594028, 0.69405972], abs=1e-7
    )


@pytest.mark.parametrize(
    ("rows", "expected"), [(1, 1), (2, 1), (3, 2), (9, 5), (31, 16), (32, 16), (200, 16)]
)
def test_few_rows_take_few_steps(rows: int, expected: int) -> None:
    assert step_count(rows, steps=16, steps_per_row=0.5) == expected


def test_no_rows_no_weights_and_one_row_weighs_one() -> None:
    assert normalised_weights([], lambda_=1.0) == []
    assert normalised_weights([0.2], lambda_=1.0) == [1.0]


@given(rewards_, lambdas)
def test_mean_is_one_and_weights_are_positive_and_ordered(
    rewards: list[float], lambda_: float
) -> None:
    weights = normalised_weights(rewards, lambda_=lambda_)
    assert len(weights) == len(rewards)
    assert math.fsum(weights) / len(weights) == pytest.approx(1.0, rel=1e-12)
    assert all(weight > 0 and math.isfinite(weight) for weight in weights)
    ordered = [weight for _, weight in sorted(zip(rewards, weights, strict=True))]
    assert ordered == sorted(ordered)


@given(rewards_, st.floats(0, 10))
def test_normalised_and_raw_weights_differ_by_one_factor(
    rewards: list[float], lambda_: float
) -> None:
    raw = [raw_weight(reward, lambda_=lambda_) for reward in rewards]
    scale = math.fsum(raw) / len(raw)
    expected = [value / scale for value in raw]
    assert normalised_weights(rewards, lambda_=lambda_) == pytest.approx(expected, rel=1e-9)


@given(st.floats(0, 1), st.integers(1, 32), lambdas)
def test_equal_rewards_weigh_one(reward: float, rows: int, lambda_: float) -> None:
    assert normalised_weights([reward] * rows, lambda_=lambda_) == [1.0] * rows


@given(rewards_)
def test_lambda_zero_weighs_all_alike(rewards: list[float]) -> None:
    assert normalised_weights(rewards, lambda_=0.0) == [1.0] * len(rewards)


def test_a_large_lambda_does_not_overflow() -> None:
    # exp(1000) is no float; what counts is the difference: the lower reward's share is e^-1000 = 0.
    assert normalised_weights([1.0, 0.0], lambda_=1000.0) == [2.0, 0.0]


def test_nan_is_an_error_with_its_place() -> None:
    with pytest.raises(NumericalError, match="R_env of the update's rows: value 1 is nan"):
        normalised_weights([0.5, math.nan], lambda_=1.0)
    with pytest.raises(NumericalError, match=r"normalised_weights\(lambda\): value 0 is nan"):
        normalised_weights([0.5, 0.5], lambda_=math.nan)
    with pytest.raises(NumericalError, match=r"raw_weight\(reward, lambda\): value 0 is inf"):
        raw_weight(math.inf, lambda_=1.0)
    with pytest.raises(NumericalError, match=r"raw_weight\(reward, lambda\): value 1 is nan"):
        raw_weight(0.5, lambda_=math.nan)
