"""Whether tasks are worth training on, from the attempts at them.

Invariants: each number is that of a hand computation; a check decides where its whole interval is
on one side of the limit; intervals hold the truth as often as they say, also for attempts that are
alike within a task; where nothing can be known there is no number, and nothing looks sure.
"""

from __future__ import annotations

import numpy as np
import pytest

from genenv_core.evidence.worth import (
    FEWEST,
    RULES,
    AttemptedTask,
    GroupCounts,
    Worth,
    WorthCheck,
    between_interval,
    between_tasks,
    mean_interval,
    worth_of,
)
from tests.mutations import mutation

WORTH = "genenv_core/evidence/worth.py"
NO_GROUP = GroupCounts(0, 0, 0.0)


def tasks(*successes: int, n: int = 4, chance: float | None = 0.0) -> list[AttemptedTask]:
    return [AttemptedTask(n, k, k > 0, chance) for k in successes]


def test_shares_are_of_tasks_and_of_groups_with_wilsons_interval() -> None:
    played = [*tasks(0, 0, 1, 2, 3, 4, 4, 4, 4), AttemptedTask(4, 0, True, 0.0)]
    found = {c.name: c for c in worth_of(played, GroupCounts(10, 8, 0.25), (0, 10))}
    assert list(found) == list(RULES)
    reachable, separating = found["reachable"], found["separating"]
    # 7 that the agent solved and 1 that the domain alone did; 3 with both outcomes. Wilson's
    # intervals of 8, 3 and 0 of 10 are in tables of it.
    assert reachable.estimate == 0.8 and reachable.fact == "the agent solved 7"
    assert (reachable.low, reachable.high) == pytest.approx((0.4902, 0.9433), abs=5e-5)
    assert separating.estimate == 0.3
    assert (separating.low, separating.high) == pytest.approx((0.1078, 0.6032), abs=5e-5)
    assert found["signal"].estimate == 0.8 and found["signal"].n == 10
    assert found["signal"].fact == "standard deviation of rewards 0.25 on average"
    assert found["floor"].estimate == 0.0 and found["floor"].low == 0.0
    assert found["floor"].high == pytest.approx(0.2775, abs=5e-5)


# By hand, with Student's t of m - 1 degrees: t^2 is 10.128 for m = 4, and 7.709 for m = 5.
@pytest.mark.parametrize(
    ("played", "low", "high"),
    [
        # s^2 / m = 1/48, so 1/4 / (1/48) = 12 effective attempts.
        (tasks(1, 1, 3, 3), 0.1617, 0.8383),
        # Equal rates: no more than the 16 attempts.
        (tasks(2, 2, 2, 2), 0.1887, 0.8113),
        # All alike: 5 effective attempts, one a task.
        (tasks(4, 4, 4, 4, 4), 0.3934, 1.0),
        (tasks(0, 0, 0, 0, 0), 0.0, 0.6066),
        (tasks(2), 0.0, 1.0),
    ],
)
def test_the_interval_of_a_mean_counts_tasks_and_not_attempts(
    played: list[AttemptedTask], low: float, high: float
) -> None:
    assert mean_interval(played) == pytest.approx((low, high), abs=5e-5)


def test_headroom_and_chance_mirror_and_shift_the_mean() -> None:
    found = {c.name: c for c in worth_of(tasks(1, 1, 3, 3, chance=0.25), NO_GROUP, (0, 0))}
    head, above = found["headroom"], found["chance"]
    assert head.estimate == 0.5
    assert (head.low, head.high) == pytest.approx((0.1617, 0.8383), abs=5e-5)
    assert above.estimate == 0.25 and above.fact == "a guess is right in 25.0%"
    assert (above.low, above.high) == pytest.approx((0.1617 - 0.25, 0.8383 - 0.25), abs=5e-5)


def test_chances_that_differ_widen_the_interval_and_unknown_ones_have_none() -> None:
    guessed = (0.5, 0.0, 0.5, 0.0)
    uneven = [AttemptedTask(4, k, True, c) for k, c in zip((1, 3, 1, 3), guessed, strict=True)]
    found = {c.name: c for c in worth_of(uneven, NO_GROUP, (0, 0))}
    assert found["chance"].estimate == 0.25  # of -1/4, 3/4, -1/4, 3/4
    assert found["chance"].low is not None and found["headroom"].low is not None
    assert found["chance"].low + 0.25 < found["headroom"].low
    unknown = {c.name: c for c in worth_of(tasks(1, 2, chance=None), NO_GROUP, (0, 0))}["chance"]
    assert (unknown.estimate, unknown.low, unknown.n) == (None, None, 0)
    assert unknown.worth is Worth.UNSURE


@mutation("binomial noise counts as a difference of tasks", WORTH,
          " * count / (count - 1) - means[:, 3]", " * count / (count - 1)")  # fmt: skip
def test_the_part_between_tasks_by_hand() -> None:
    # 1/4 and 3/4 of 4: sample variance 1/8, noise 1/16, so between 1/16; within 4/16.
    assert between_tasks(tasks(1, 3)) == pytest.approx(0.2)
    # 1/2 of 2 and 4/4: sample variance 1/8, noise (1/4 + 0) / 2, so nothing is left.
    assert between_tasks([*tasks(1, n=2), *tasks(4)]) == pytest.approx(0.0)
    # Equal rates: 0 - 1/12 between, 1/3 within.
    assert between_tasks(tasks(2, 2, 2)) == pytest.approx(-1 / 3)
    assert between_tasks(tasks(0, 4)) == pytest.approx(1.0)
    for nothing in (tasks(), tasks(2), tasks(4, 4), tasks(0, 0)):
        assert between_tasks(nothing) is None
    below = worth_of(tasks(2, 2, 2), NO_GROUP, (0, 0))
    assert {c.name: c.estimate for c in below}["variance"] == 0.0


def test_one_attempt_says_nothing_about_noise_and_few_tasks_nothing_about_variance() -> None:
    found = {c.name: c for c in worth_of([*tasks(1, n=1), *tasks(1, 3)], NO_GROUP, (0, 0))}
    assert found["variance"].n == 2 and found["variance"].estimate == pytest.approx(0.2)
    assert found["variance"].low is None and found["variance"].worth is Worth.UNSURE
    many = tasks(*[0, 4] * (FEWEST // 2))
    assert between_interval(many[:-1]) == (None, None)
    low, high = between_interval(many)
    assert low is not None and 0.5 < low < 1.0 == high  # ten tasks do not make it sure


def test_the_bootstrap_is_the_same_each_time_and_in_any_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = tasks(*[0, 1, 2, 3] * 5)
    once = between_interval(played)
    assert between_interval(played) == once
    monkeypatch.setattr("genenv_core.evidence.worth._CHUNK", 20 * 300)
    assert between_interval(played) == once


@mutation("an undecided check passes", WORTH, "good, bad = self.low >= limit, self.high < limit",
          "good, bad = self.high >= limit, self.high < limit")  # fmt: skip
@pytest.mark.parametrize(
    ("name", "low", "high", "worth"),
    [
        ("reachable", 0.9, 1.0, Worth.PASS), ("reachable", 0.89, 1.0, Worth.UNSURE),
        ("reachable", 0.5, 0.9, Worth.UNSURE), ("reachable", 0.5, 0.89, Worth.FAIL),
        ("floor", 0.0, 0.05, Worth.PASS), ("floor", 0.05, 0.06, Worth.UNSURE),
        ("floor", 0.051, 0.2, Worth.FAIL), ("chance", 0.0, 0.2, Worth.UNSURE),
        ("chance", -0.3, 0.04, Worth.FAIL), ("variance", None, None, Worth.UNSURE),
    ],
)  # fmt: skip
def test_a_check_decides_where_its_interval_is_on_one_side(
    name: str, low: float | None, high: float | None, worth: Worth
) -> None:
    assert WorthCheck(name, 0.5, low, high, 9).worth is worth


def test_no_attempt_says_nothing() -> None:
    for check in worth_of([], NO_GROUP, (0, 0)):
        assert (check.estimate, check.low, check.high, check.n) == (None, None, None, 0)
        assert check.worth is Worth.UNSURE


# Attempts at tasks with p of beta(1/2, 1/2): mean 1/2, and half of the variance between tasks.
@mutation("each attempt counts as a task", WORTH,
          "size = min(even / spread, attempts) if spread > 0 else attempts",
          "size = attempts")  # fmt: skip
def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(7)
    held, between = 0, 0
    for played in range(200):
        drawn = rng.binomial(8, rng.beta(0.5, 0.5, 20))
        found = tasks(*(int(k) for k in drawn), n=8)
        low, high = mean_interval(found)
        held += low <= 0.5 <= high
        if played < 80:  # the bootstrap takes longer
            low, high = between_interval(found)
            assert low is not None and high is not None and high - low < 0.8
            between += low <= 0.5 <= high
    assert 0.91 <= held / 200 <= 0.99
    assert between / 80 >= 0.91
