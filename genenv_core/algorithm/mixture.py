"""The D_train sample of an agent update: new, base and history groups in configured shares."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from genenv_core.algorithm.selection import TOLERANCE
from schemas.enums import PoolSource


@dataclass(frozen=True, slots=True)
class Group:
    """One group of D_train that an update may draw."""

    group_id: str
    source: PoolSource
    policy_version: int


def base_attempts(new_tasks: int, *, new_share: float, base_share: float) -> int:
    """Return how many base tasks to attempt beside `new_tasks`, rounded half up."""
    return _half_up(new_tasks * base_share / new_share)


def admissible(policy_version: int, *, current: int, max_age: int) -> bool:
    """Return whether a stored group may be replayed: at most max_age versions old, not current."""
    return 1 <= current - policy_version <= max_age


def draw(
    groups: Sequence[Group],
    *,
    shares: Mapping[PoolSource, float],
    max_groups: int,
    seed: int,
) -> list[Group]:
    """Return the groups of one update, without repetition, in a seeded order.

    The update has room for N groups: the largest number, at most `max_groups`, for which the new
    groups on hand fill their share. A source contributes at most round(share x N), and where
    rounding would pass N together, history gives way first. Base and history groups that are
    missing are not replaced by others, so the shares are upper bounds and new traces are never
    thinned out to keep a ratio.
    """
    by_source: dict[PoolSource, list[Group]] = {source: [] for source in PoolSource}
    for group in groups:
        by_source[group.source].append(group)
    target = min(max_groups, _half_up(len(by_source[PoolSource.NEW]) / shares[PoolSource.NEW]))
    rng = np.random.default_rng([seed, 0x6D69])
    room, drawn = target, list[Group]()
    for source in (PoolSource.NEW, PoolSource.BASE, PoolSource.HISTORY):
        pool = sorted(by_source[source], key=lambda group: group.group_id)
        quota = min(room, _half_up(shares[source] * target))
        room -= quota
        want = min(len(pool), quota)
        drawn.extend(pool[index] for index in sorted(_choice(rng, len(pool), want)))
    order = rng.permutation(len(drawn))
    return [drawn[int(index)] for index in order]


def _choice(rng: np.random.Generator, size: int, want: int) -> list[int]:
    return [int(i) for i in rng.choice(size, size=want, replace=False)] if want else []


def _half_up(value: float) -> int:
    # With a tolerance: 8 * 0.15 / 0.8 is 1.4999999999999998 in floats and means 1.5.
    return math.floor(value + 0.5 + TOLERANCE)
