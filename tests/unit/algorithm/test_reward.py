"""p_hat, R_env and rating at every level.

Invariants: golden numbers by hand; R_env is in (0, 1], is 1 exactly at alpha, symmetric around it
and falls with the distance; alpha may be 0 or 1; pooling adds attempts, so a task alone in its
context or batch is rated alike at all levels; the chosen level picks its own column; order does
not matter; NaN is an error with its place.
"""

from __future__ import annotations

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genenv_core.algorithm.reward import TaskCounts, judged_p_hat, p_hat, r_env, rate
from genenv_core.config.sections.curriculum import Level
from genenv_core.errors import NumericalError
from tests.mutations import mutation

REWARD = "genenv_core/algorithm/reward.py"

unit = st.floats(0, 1)
sharpness = st.floats(0.01, 100)
counts = st.integers(1, 16).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def test_p_hat_is_the_share_of_successes() -> None:
    assert p_hat(3, 8) == 0.375
    assert p_hat(0, 1) == 0.0
    assert p_hat(1, 1) == 1.0


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (-1, 4), (5, 4)])
def test_p_hat_refuses_what_is_no_count(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match=f"got {successes} of {n}"):
        p_hat(successes, n)


@mutation("r_env rewards the distance from alpha", REWARD, "math.exp(-beta *", "math.exp(beta *")
@mutation(
    "r_env without the square", REWARD, "(success_rate - alpha) ** 2)", "abs(success_rate - alpha))"
)
@pytest.mark.parametrize(
    ("p", "alpha", "beta", "expected"),
    [
        (0.5, 0.5, 4.0, 1.0),
        (0.75, 0.5, 4.0, 0.7788007830714049),  # -4 * 0.25^2 = -1/4; e^-0.25
        (0.0, 0.5, 4.0, 0.36787944117144233),  # -4 * 0.5^2 = -1; e^-1
        (1.0, 0.0, 4.0, 0.01831563888873418),  # alpha 0: -4 * 1 = -4; e^-4
        (1.0, 1.0, 4.0, 1.0),  # alpha 1
        (0.5, 1.0, 2.0, 0.6065306597126334),  # -2 * 0.5^2 = -1/2; e^-0.5
    ],
)
def test_r_env_golden(p: float, alpha: float, beta: float, expected: float) -> None:
    assert r_env(p, alpha=alpha, beta=beta) == pytest.approx(expected, rel=1e-12)


@given(unit, unit, sharpness)
def test_r_env_peaks_at_alpha(p: float, alpha: float, beta: float) -> None:
    value = r_env(p, alpha=alpha, beta=beta)
    assert 0.0 < value <= 1.0 == r_env(alpha, alpha=alpha, beta=beta)
    if abs(p - alpha) > 1e-3:
        assert value < 1.0


@given(st.floats(0, 0.5), sharpness, unit)
def test_r_env_is_symmetric_around_alpha(distance: float, beta: float, alpha: float) -> None:
    above = r_env(alpha + distance, alpha=alpha, beta=beta)
    assert r_env(alpha - distance, alpha=alpha, beta=beta) == pytest.approx(above, rel=1e-9)


@given(unit, unit, unit)
def test_r_env_falls_with_the_distance(left: float, right: float, alpha: float) -> None:
    if abs(left - alpha) > abs(right - alpha) + 1e-3:
        assert r_env(left, alpha=alpha, beta=4) < r_env(right, alpha=alpha, beta=4)


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_is_an_error_with_its_place(place: int, bad: float) -> None:
    p, alpha, beta = (bad if place == index else 0.5 for index in range(3))
    with pytest.raises(NumericalError, match=rf"r_env\(.*\): value {place} is {bad}"):
        r_env(p, alpha=alpha, beta=beta)


GOLDEN = [
    TaskCounts("a", "c1", 0, 4),
    TaskCounts("b", "c1", 2, 4),
    TaskCounts("c", "c2", 8, 8),
]


@mutation(
    "p_hat of a context is its last task's", REWARD,
    "(k + item.successes, n + item.n)", "(item.successes, item.n)",
)  # fmt: skip
def test_rating_golden_at_every_level() -> None:
    # Contexts: c1 has 0 + 2 of 8 = 0.25, c2 8 of 8 = 1. The batch has 10 of 16 = 0.625.
    rated = rate(GOLDEN, alpha=0.5, beta=4)
    assert [r.group_id for r in rated] == ["a", "b", "c"]
    levels = (Level.TASK, Level.GROUP, Level.BATCH)
    assert [[r.p_hat[level] for level in levels] for r in rated] == [
        [0.0, 0.25, 0.625],
        [0.5, 0.25, 0.625],
        [1.0, 1.0, 0.625],
    ]
    # R: distance 1/2 -> e^-1, 1/4 -> e^-1/4, 1/8 -> e^-1/16, 0 -> 1.
    one, quarter, sixteenth = math.exp(-1), math.exp(-1 / 4), math.exp(-1 / 16)
    a, b, c = ([r.r_env[level] for level in levels] for r in rated)
    assert a == pytest.approx([one, quarter, sixteenth])
    assert b == pytest.approx([1.0, quarter, sixteenth])
    assert c == pytest.approx([one, one, sixteenth])


@mutation(
    "the band looks at a task's own p_hat", REWARD,
    'pl.coalesce(P_HAT_COLUMNS[level], "p_hat")', 'pl.col("p_hat")',
)  # fmt: skip
@pytest.mark.parametrize(
    ("level", "judged"),
    [(Level.TASK, [0.5, 1.0]), (Level.GROUP, [0.25, 1.0]), (Level.BATCH, [0.625, 1.0])],
)
def test_what_is_judged_is_the_level_asked_for_and_a_base_task_by_its_own(
    level: Level, judged: list[float]
) -> None:
    rows = pl.DataFrame(
        {"p_hat": [0.5, 1.0], "p_hat_group": [0.25, None], "p_hat_batch": [0.625, None]}
    )
    assert rows.select(judged_p_hat(level)).to_series().to_list() == judged


def test_nothing_to_rate_and_a_group_of_one() -> None:
    assert rate([], alpha=0.5, beta=4) == []
    (alone,) = rate([TaskCounts("a", "c", 1, 1)], alpha=0.5, beta=4)
    assert alone.p_hat == dict.fromkeys(Level, 1.0)


def test_an_empty_group_is_refused() -> None:
    with pytest.raises(ValueError, match="0 of 0"):
        rate([TaskCounts("a", "c", 0, 0)], alpha=0.5, beta=4)


@given(st.lists(st.tuples(counts, st.sampled_from("xyz")), min_size=1, max_size=12))
def test_rating_does_not_depend_on_order(items: list[tuple[tuple[int, int], str]]) -> None:
    given_ = [TaskCounts(f"t{i}", context, k, n) for i, ((k, n), context) in enumerate(items)]
    forward = rate(given_, alpha=0.5, beta=4)
    assert [r.group_id for r in forward] == [c.group_id for c in given_]
    backward = rate(given_[::-1], alpha=0.5, beta=4)
    assert forward == backward[::-1]
    assert len({r.p_hat[Level.BATCH] for r in forward}) == 1
    for context in "xyz":
        inside = [i for i, c in enumerate(given_) if c.context_id == context]
        assert len({forward[i].p_hat[Level.GROUP] for i in inside}) <= 1
        pooled = [forward[i].p_hat[Level.TASK] for i in inside]
        if pooled:
            assert (
                min(pooled) - 1e-12 <= forward[inside[0]].p_hat[Level.GROUP] <= max(pooled) + 1e-12
            )
