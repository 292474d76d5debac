"""Weights of the reward-weighted regression.

Invariants: golden numbers by hand; normalised weights have mean 1, are positive and ordered like
the rewards; without families, weights are the plain formula's to the last bit; with them, a
family's share grows more slowly than its rows, the only row of a family does not outweigh all
others, and families of one size change nothing; the target moves against the error, by track,
within .2 and .8 or as far as alpha, and is alpha without tracking, without error and without tasks;
steps grow with the rows up to their limit; no lambda that the configuration allows overflows; NaN
is an error with its place.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genenv_core.algorithm.pay.alpha import tracked_target
from genenv_core.algorithm.pay.weights import normalised_weights, raw_weight, step_count
from genenv_core.errors import NumericalError
from tests.mutations import mutation

RWR = "genenv_core/algorithm/pay/weights.py"
ALPHA = "genenv_core/algorithm/pay/alpha.py"

rewards_ = st.lists(st.floats(0, 1), min_size=1, max_size=32)
lambdas = st.floats(0, 100)
labelled = st.lists(st.tuples(st.floats(0, 1), st.sampled_from("abc")), min_size=1, max_size=32)


def test_raw_weight_golden() -> None:
    assert raw_weight(1.0, lambda_=1.0) == pytest.approx(math.e, rel=1e-15)
    assert raw_weight(0.5, lambda_=2.0) == pytest.approx(2.718281828459045, rel=1e-15)
    assert raw_weight(0.7, lambda_=0.0) == 1.0


@mutation("rwr weights without mean 1", RWR, "scale = mean(shifted)", "scale = 1.0")
@mutation(
    "rwr weights fall with the reward", RWR,
    "math.exp(lambda_ * (one - top))", "math.exp(lambda_ * (top - one))",
)  # fmt: skip
def test_normalised_golden() -> None:
    # lambda ln 3, rewards 0 and 1: raw 1 and 3, mean 2, normalised 1/2 and 3/2.
    assert normalised_weights([0.0, 1.0], lambda_=math.log(3)) == pytest.approx([0.5, 1.5])
    # lambda 1, rewards 1 and e^-1 (k/n of 1/2 and of 0 or 1): raw e and e^0.36787944 =
    # 2.71828183 and 1.44466786, mean 2.08147485, normalised 1.30594028 and 0.69405972.
    assert normalised_weights([1.0, math.exp(-1)], lambda_=1.0) == pytest.approx(
        [1.30594028, 0.69405972], abs=1e-7
    )


@mutation(
    "rwr takes all its steps on few rows", RWR,
    "max(1, min(steps, math.ceil(rows * steps_per_row)))", "steps",
)  # fmt: skip
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


@given(rewards_, lambdas)
def test_without_families_the_weights_are_the_plain_formula_to_the_last_bit(
    rewards: list[float], lambda_: float
) -> None:
    shifted = [math.exp(lambda_ * (reward - max(rewards))) for reward in rewards]
    scale = math.fsum(shifted) / len(shifted)
    assert normalised_weights(rewards, lambda_=lambda_) == [value / scale for value in shifted]


@mutation("a family weighs by its size", RWR, "if families is not None:", "if False:")
def test_a_row_is_divided_by_the_rows_of_its_family_and_of_a_usual_one_golden() -> None:
    # lambda ln 2: raw 2, 2, 1, 2, and 1, 1, 1/2, 1 without the largest; families of 3 and 1, mean
    # 2: 1/5, 1/5, 1/10 and 1/3 with mean 5/24, so .96, .96, .48 and 1.6.
    weights = normalised_weights([1, 1, 0, 1], lambda_=math.log(2), families=["a", "a", "a", "b"])
    assert weights == pytest.approx([0.96, 0.96, 0.48, 1.6], rel=1e-12)
    assert normalised_weights([], lambda_=1.0, families=[]) == []


@given(labelled, lambdas)
def test_with_families_the_mean_is_one_and_weights_are_positive(
    rows: list[tuple[float, str]], lambda_: float
) -> None:
    rewards, families = [reward for reward, _ in rows], [family for _, family in rows]
    weights = normalised_weights(rewards, lambda_=lambda_, families=families)
    assert math.fsum(weights) / len(weights) == pytest.approx(1.0, rel=1e-12)
    assert all(weight > 0 and math.isfinite(weight) for weight in weights)
    # Within a family, weights are ordered like the rewards.
    for name in families:
        own = sorted(
            row[:2] for row in zip(rewards, weights, families, strict=True) if row[2] == name
        )
        assert [weight for _, weight in own] == sorted(weight for _, weight in own)


@given(labelled)
def test_a_small_family_weighs_more_than_its_size_and_less_than_a_large_one(
    rows: list[tuple[float, str]],
) -> None:
    families = [family for _, family in rows]
    weights = normalised_weights([reward for reward, _ in rows], lambda_=0.0, families=families)
    total, size = Counter[str](), Counter(families)
    for family, weight in zip(families, weights, strict=True):
        total[family] += weight
    for one, other in combinations(size, 2):
        small, large = sorted((one, other), key=lambda name: (size[name], name))
        assert total[small] <= total[large] * (1 + 1e-12)
        assert total[small] / size[small] >= total[large] / size[large] * (1 - 1e-12)


@mutation(
    "a usual family does not bound the weight of a small one", RWR,
    "value / (sizes[name] + usual)", "value / sizes[name]",
)  # fmt: skip
def test_the_only_row_of_a_family_does_not_outweigh_all_others() -> None:
    weights = normalised_weights([0.5] * 100, lambda_=4.0, families=["a"] * 99 + ["b"])
    assert weights[-1] == pytest.approx(2.876, abs=0.01)


@given(rewards_, lambdas, st.integers(1, 4))
def test_families_of_one_size_change_nothing(
    rewards: list[float], lambda_: float, size: int
) -> None:
    rows = rewards * size
    families = [str(index % len(rewards)) for index in range(len(rows))]
    plain = normalised_weights(rows, lambda_=lambda_)
    assert normalised_weights(rows, lambda_=lambda_, families=families) == pytest.approx(
        plain, rel=1e-12
    )


def test_a_family_for_each_row_is_asked_for() -> None:
    with pytest.raises(ValueError, match="zip"):
        normalised_weights([0.5, 0.5], lambda_=1.0, families=["a"])


@mutation(
    "the target moves with the error", ALPHA,
    "alpha + track * (alpha - skill)\n    return", "alpha - track * (alpha - skill)\n    return",
)  # fmt: skip
@mutation(
    "the target moves without limits", ALPHA,
    "min(max(moved, min(TARGET_LOW, alpha)), max(TARGET_HIGH, alpha))", "moved",
)  # fmt: skip
@pytest.mark.parametrize(
    ("skill", "alpha", "track", "expected"),
    [
        (0.7, 0.5, 1.0, 0.3),  # .5 + 1 (.5 - .7)
        (0.25, 0.5, 0.5, 0.625),  # .5 + .5 (.5 - .25)
        (0.6, 0.4, 0.5, 0.3),  # .4 + .5 (.4 - .6)
        (1.0, 0.5, 2.0, 0.2),  # .5 + 2 (-.5) = -.5, cut
        (0.0, 0.5, 2.0, 0.8),  # 1.5, cut
        (0.9, 0.9, 2.0, 0.9),  # an alpha above .8 is its own limit
        (0.0, 0.9, 1.0, 0.9),
        (1.0, 0.1, 1.0, 0.1),
    ],
)
def test_the_target_moves_against_the_error(
    skill: float, alpha: float, track: float, expected: float
) -> None:
    assert tracked_target(skill, alpha=alpha, track=track) == pytest.approx(expected, abs=1e-12)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 2))
def test_the_target_is_alpha_without_tracking_error_or_tasks(
    skill: float, alpha: float, track: float
) -> None:
    assert tracked_target(skill, alpha=alpha, track=0.0) == alpha
    assert tracked_target(alpha, alpha=alpha, track=track) == alpha
    assert tracked_target(None, alpha=alpha, track=track) == alpha
    moved = tracked_target(skill, alpha=alpha, track=track)
    assert min(0.2, alpha) <= moved <= max(0.8, alpha)
    assert (moved - alpha) * (alpha - skill) >= 0


def test_a_large_lambda_does_not_overflow() -> None:
    # exp(1000) is no float; what counts is the difference: the lower reward's share is e^-1000 = 0.
    assert normalised_weights([1.0, 0.0], lambda_=1000.0) == [2.0, 0.0]


def test_nan_is_an_error_with_its_place() -> None:
    with pytest.raises(NumericalError, match="the pay of the update's rows: value 1 is nan"):
        normalised_weights([0.5, math.nan], lambda_=1.0)
    with pytest.raises(NumericalError, match=r"normalised_weights\(lambda\): value 0 is nan"):
        normalised_weights([0.5, 0.5], lambda_=math.nan)
    with pytest.raises(NumericalError, match=r"tracked_target\(skill, .*: value 0 is nan"):
        tracked_target(math.nan, alpha=0.5, track=1.0)
    with pytest.raises(NumericalError, match=r"raw_weight\(pay, lambda\): value 0 is inf"):
        raw_weight(math.inf, lambda_=1.0)
    with pytest.raises(NumericalError, match=r"raw_weight\(pay, lambda\): value 1 is nan"):
        raw_weight(0.5, lambda_=math.nan)
