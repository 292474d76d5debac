"""p_hat, R_env and rating at every level.

Invariants: golden numbers by hand; R_env is in (0, 1], is 1 exactly at alpha, symmetric around it
and falls with the distance; alpha may be 0 or 1; pooling adds attempts, so a task alone in its
context or batch is rated alike at all levels; success by a guess is no skill, and without a chance
the skill is p_hat, bit for bit; the chosen level picks its own column; order does
not matter; NaN is an error with its place.
"""

from __future__ import annotations

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genenv_core.algorithm.chance import TaskCounts, above_chance, p_hat, skill_of
from genenv_core.algorithm.reward import judged_p_hat, judged_skill, r_env, rate
from genenv_core.config.sections.curriculum import Level
from genenv_core.errors import NumericalError
from tests.mutations import mutation

REWARD = "genenv_core/algorithm/reward.py"
CHANCE = "genenv_core/algorithm/chance.py"

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
@mutation("r_env without the square", REWARD, "(skill - alpha) ** 2)", "abs(skill - alpha))")
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
    "by_context.setdefault(item.context_id, []).append(item)",
    "by_context[item.context_id] = [item]",
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


@mutation(
    "a guess is skill", CHANCE,
    "return max(0.0, (rate - chance) / (1 - chance))", "return max(0.0, rate)",
)  # fmt: skip
@mutation(
    "worse than a guess is a skill below 0", CHANCE,
    "return max(0.0, (rate - chance) / (1 - chance))", "return (rate - chance) / (1 - chance)",
)  # fmt: skip
@pytest.mark.parametrize(
    ("rate_", "chance", "expected"),
    [
        (0.5, 0.5, 0.0),  # a coin
        (0.75, 0.5, 0.5),  # half known, half of the rest guessed
        (1.0, 0.5, 1.0),
        (0.25, 0.5, 0.0),  # below chance
        (0.5, 0.25, 1 / 3),  # one of four options
    ],
)
def test_skill_is_what_lies_above_chance(rate_: float, chance: float, expected: float) -> None:
    assert above_chance(rate_, chance) == pytest.approx(expected, abs=1e-15)


@given(counts)
def test_without_a_chance_the_skill_is_p_hat_to_the_bit(kn: tuple[int, int]) -> None:
    (rated,) = rate([TaskCounts("a", "c", *kn)], alpha=0.5, beta=8)
    assert rated.skill == rated.p_hat
    assert rated.r_env[Level.TASK] == r_env(p_hat(*kn), alpha=0.5, beta=8)


@pytest.mark.parametrize("chance", [-0.1, 1.0, 1.5])
def test_a_chance_that_leaves_nothing_to_know_is_refused(chance: float) -> None:
    with pytest.raises(ValueError, match="from 0 to below 1"):
        above_chance(0.5, chance)


@mutation(
    "a context forgets the chances of its tasks", CHANCE,
    "math.fsum(item.n * item.chance for item in items)", "n * items[-1].chance",
)  # fmt: skip
def test_tasks_with_and_without_a_guess_are_joined_by_what_lies_above_it() -> None:
    # 6 of 8 with a coin's chance, 2 of 8 without: 8 of 16 at a mean chance of 1/4, so 1/3.
    asked, moved = TaskCounts("a", "x", 6, 8, 0.5), TaskCounts("b", "x", 2, 8)
    first, second = rate([asked, moved], alpha=0.5, beta=4)
    assert (first.skill[Level.TASK], second.skill[Level.TASK]) == (0.5, 0.25)
    assert first.skill[Level.GROUP] == second.skill[Level.BATCH] == pytest.approx(1 / 3)
    assert first.p_hat[Level.BATCH] == 0.5
    assert first.r_env[Level.TASK] == 1.0 and first.r_env[Level.BATCH] < 1.0
    groups = pl.DataFrame(
        {"group_id": ["a", "b"], "task_id": ["s", "t"], "successes": [6, 2], "n": [8, 8]}
    )
    tasks = pl.DataFrame({"task_id": ["s", "t"], "chance": [0.5, None]})
    assert skill_of(groups, tasks) == first.skill[Level.BATCH]
    assert skill_of(groups.clear(), tasks) is None


def test_who_only_guesses_earns_pi_env_less_than_who_knows_a_third() -> None:
    """Expected R_env of 8 attempts, over the binomial distribution of their successes."""

    def expected(p: float, chance: float) -> float:
        shares = [math.comb(8, k) * p**k * (1 - p) ** (8 - k) for k in range(9)]
        tasks = [TaskCounts("a", "c", k, 8, chance) for k in range(9)]
        earned = [rate([one], alpha=0.5, beta=8)[0].r_env[Level.TASK] for one in tasks]
        return sum(share * reward for share, reward in zip(shares, earned, strict=True))

    coin, unjudged, third = expected(0.5, 0.5), expected(0.5, 0.0), expected(1 / 3, 0.0)
    assert unjudged == max(unjudged, third)  # by p_hat, a coin is the best of all
    assert coin < 0.6 * third


@mutation(
    "the filter judges guesses as skill", REWARD,
    'return pl.coalesce(SKILL_COLUMNS[level], "skill", judged_p_hat(level))',
    "return judged_p_hat(level)",
)  # fmt: skip
def test_the_filter_judges_the_skill_and_rows_without_one_by_p_hat() -> None:
    rows = pl.DataFrame(
        {
            "p_hat": [0.75, 1.0, 0.5], "p_hat_group": [0.5, None, 0.25], "p_hat_batch": [0.6] * 3,
            "skill": [0.5, 0.9, None], "skill_group": [0.0, None, None],
            "skill_batch": [0.2, None, None],
        }
    )  # fmt: skip
    assert rows.select(judged_skill(Level.TASK)).to_series().to_list() == [0.5, 0.9, 0.5]
    assert rows.select(judged_skill(Level.GROUP)).to_series().to_list() == [0.0, 0.9, 0.25]
