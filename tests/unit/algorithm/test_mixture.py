"""The D_train sample of an agent update.

Invariants: golden numbers by hand; no group is drawn twice; no source passes its share and all
together never pass max_groups; no new group is dropped below it; missing base and history
groups are not replaced; the draw is deterministic, blind to the order of its input, and depends on
the seed; history is at least one and at most max_age versions old.
"""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genenv_core.algorithm.mixture import Group, admissible, base_attempts, draw
from schemas.enums import MixtureShare
from tests.mutations import mutation

MIXTURE = "genenv_core/algorithm/mixture.py"

NEW, BASE, HISTORY = MixtureShare.NEW, MixtureShare.BASE, MixtureShare.HISTORY
QUICKSTART = {NEW: 0.75, BASE: 0.125, HISTORY: 0.125}

sizes = st.tuples(st.integers(0, 40), st.integers(0, 20), st.integers(0, 20))


@st.composite
def shares_(draw_: st.DrawFn) -> dict[MixtureShare, float]:
    new, base, history = draw_(
        st.tuples(st.integers(1, 20), st.integers(0, 20), st.integers(0, 20))
    )
    total = new + base + history
    return {NEW: new / total, BASE: base / total, HISTORY: history / total}


def pool(new: int, base: int = 0, history: int = 0) -> list[Group]:
    counts = {NEW: new, BASE: base, HISTORY: history}
    return [
        Group(f"{source.value}-{index:03d}", source, 0 if source is HISTORY else 1)
        for source, count in counts.items()
        for index in range(count)
    ]


def half_up(value: float) -> int:
    return math.floor(value + 0.5 + 1e-9)


def sources(groups: list[Group]) -> tuple[int, int, int]:
    counted = Counter(group.source for group in groups)
    return counted[NEW], counted[BASE], counted[HISTORY]


@pytest.mark.parametrize(
    ("new_tasks", "new_share", "base_share", "expected"),
    [
        (64, 0.75, 0.125, 11),  # 64 * 0.125 / 0.75 = 10.67
        (8, 0.8, 0.15, 2),  # 8 * 0.15 / 0.8 = 1.5 (1.4999999999999998 in floats), half up
        (8, 1.0, 0.0, 0),
        (0, 0.5, 0.5, 0),
        (1, 0.75, 0.125, 0),  # 0.17
    ],
)
def test_base_attempts_golden(
    new_tasks: int, new_share: float, base_share: float, expected: int
) -> None:
    assert base_attempts(new_tasks, new_share=new_share, base_share=base_share) == expected


@mutation(
    "any policy age is admitted", MIXTURE,
    "return 1 <= current - policy_version <= max_age", "return 1 <= current - policy_version",
)  # fmt: skip
@pytest.mark.parametrize(
    ("version", "expected"),
    [(5, False), (4, True), (3, True), (2, False), (6, False)],  # current 5, at most 2 old
)
def test_admissible_age(version: int, expected: bool) -> None:
    assert admissible(version, current=5, max_age=2) is expected


@mutation(
    "history takes the room of new groups", MIXTURE,
    "for source in (MixtureShare.NEW, MixtureShare.BASE, MixtureShare.HISTORY):",
    "for source in (MixtureShare.HISTORY, MixtureShare.BASE, MixtureShare.NEW):",
)  # fmt: skip
@pytest.mark.parametrize(
    ("on_hand", "max_groups", "expected"),
    [
        ((64, 20, 20), 64, (48, 8, 8)),  # 64 / 0.75 = 85.3, cut to 64; 48, 8, 8
        ((24, 20, 20), 64, (24, 4, 4)),  # 24 / 0.75 = 32; 24, 4, 4: no new group stays behind
        ((24, 1, 0), 64, (24, 1, 0)),  # what is missing is not replaced
        ((0, 20, 20), 64, (0, 0, 0)),  # nothing new: nothing to mix with
        ((33, 20, 20), 64, (33, 6, 5)),  # 44: 33 + 5.5 + 5.5, history gives way to rounding
        ((20, 20, 20), 4, (3, 1, 0)),  # 4: 3 + 0.5 + 0.5, never 5
        ((20, 20, 20), 1, (1, 0, 0)),  # 0.75 rounds to 1
        ((1, 20, 20), 64, (1, 0, 0)),  # 1 / 0.75 rounds to 1; 0.125 to 0
    ],
)
def test_draw_golden(
    on_hand: tuple[int, int, int], max_groups: int, expected: tuple[int, int, int]
) -> None:
    drawn = draw(pool(*on_hand), shares=QUICKSTART, max_groups=max_groups, seed=3)
    assert sources(drawn) == expected


def test_new_alone() -> None:
    shares = {NEW: 1.0, BASE: 0.0, HISTORY: 0.0}
    assert sources(draw(pool(9, 9, 9), shares=shares, max_groups=64, seed=0)) == (9, 0, 0)


@given(sizes, shares_(), st.integers(1, 64), st.integers(0, 2**31))
def test_draw_holds_its_promises(
    on_hand: tuple[int, int, int], shares: dict[MixtureShare, float], max_groups: int, seed: int
) -> None:
    groups = pool(*on_hand)
    drawn = draw(groups, shares=shares, max_groups=max_groups, seed=seed)
    ids = [group.group_id for group in drawn]
    assert len(set(ids)) == len(ids) <= max_groups
    assert set(drawn) <= set(groups)
    room = min(max_groups, half_up(on_hand[0] / shares[NEW]))
    assert len(ids) <= room
    for source, count in zip((NEW, BASE, HISTORY), sources(drawn), strict=True):
        assert count <= half_up(shares[source] * room)
    # New groups stay behind only where max_groups leaves no room for their share.
    kept = min(on_hand[0], half_up(shares[NEW] * room))
    assert sources(drawn)[0] == kept
    if room < max_groups:
        assert kept == on_hand[0]


@given(sizes, st.randoms(use_true_random=False), st.integers(0, 100))
def test_order_of_input_does_not_count(
    on_hand: tuple[int, int, int], random: object, seed: int
) -> None:
    groups = pool(*on_hand)
    first = draw(groups, shares=QUICKSTART, max_groups=16, seed=seed)
    random.shuffle(groups)  # type: ignore[attr-defined]
    assert draw(groups, shares=QUICKSTART, max_groups=16, seed=seed) == first


def test_the_seed_chooses_and_orders() -> None:
    groups = pool(40, 20, 20)
    draws = [draw(groups, shares=QUICKSTART, max_groups=32, seed=seed) for seed in range(8)]
    assert len({tuple(drawn) for drawn in draws}) == 8
    assert len({frozenset(drawn) for drawn in draws}) == 8
    # Over seeds every group has its turn: none is left out by its place in the pool.
    seen = {group for drawn in draws for group in drawn if group.source is NEW}
    assert len(seen) == 40


def test_sources_are_mixed_in_the_order() -> None:
    drawn = draw(pool(24, 4, 4), shares=QUICKSTART, max_groups=64, seed=0)
    assert [group.source for group in drawn] != sorted(group.source for group in drawn)
    assert drawn[:24] != pool(24)
