"""The D_train sample of an agent update: new, base and history groups in configured shares."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from genenv_core.algorithm.selection import TOLERANCE
from genenv_core.domains.shares import Shares
from schemas.enums import MixtureShare


@dataclass(frozen=True, slots=True)
class Group:
    """One group of D_train that an update may draw; `domain` is '' in a run of one domain."""

    group_id: str
    source: MixtureShare
    policy_version: int
    domain: str = ""


def base_attempts(new_tasks: int, *, new_share: float, base_share: float) -> int:
    """Return how many base tasks to attempt beside `new_tasks`, rounded half up."""
    return _half_up(new_tasks * base_share / new_share)


def step_count(groups: int, *, passes: int, per_step: int) -> int:
    """Return the optimizer steps of an update on so many groups; a pass may end in a small one."""
    return passes * math.ceil(groups / per_step)


def admissible(policy_version: int, *, current: int, max_age: int) -> bool:
    """Return whether a stored group may be replayed: at most max_age versions old, not current."""
    return 1 <= current - policy_version <= max_age


def draw(
    groups: Sequence[Group],
    *,
    shares: Mapping[MixtureShare, float],
    max_groups: int,
    seed: int,
    domains: Shares | None = None,
) -> list[Group]:
    """Return the groups of one update, without repetition, in a seeded order.

    The update has room for N groups: the largest number, at most `max_groups`, for which the new
    groups fill their share. A source contributes at most round(share x N); where rounding would
    exceed N in total, history gives way first. No other group replaces a missing base or history
    group, so the shares are upper bounds, and no ratio costs a new trace.

    Each of several `domains` has its share of the history groups, so that old groups of one do not
    crowd out those of another. Where one has too few, the others fill its places.
    """
    by_source: dict[MixtureShare, list[Group]] = {source: [] for source in MixtureShare}
    for group in groups:
        by_source[group.source].append(group)
    target = min(max_groups, _half_up(len(by_source[MixtureShare.NEW]) / shares[MixtureShare.NEW]))
    rng = np.random.default_rng([seed, 0x6D69])
    room, drawn = target, list[Group]()
    for source in (MixtureShare.NEW, MixtureShare.BASE, MixtureShare.HISTORY):
        offered = sorted(by_source[source], key=lambda group: group.group_id)
        quota = min(room, _half_up(shares[source] * target))
        room -= quota
        if source is MixtureShare.HISTORY and domains is not None:
            drawn += _by_domain(offered, quota, domains, rng)
        else:
            drawn += _some(offered, quota, rng)
    return [drawn[index] for index in rng.permutation(len(drawn)).tolist()]


def _by_domain(
    offered: Sequence[Group], quota: int, domains: Shares, rng: np.random.Generator
) -> list[Group]:
    own = {name: [one for one in offered if one.domain == name] for name in domains.names}
    split = domains.within(quota, {name: len(groups) for name, groups in own.items()})
    return [one for name, groups in own.items() for one in _some(groups, split[name], rng)]


def _some(offered: Sequence[Group], quota: int, rng: np.random.Generator) -> list[Group]:
    chosen = rng.choice(len(offered), size=min(len(offered), quota), replace=False)
    return [offered[index] for index in sorted(chosen.tolist())]


def _half_up(value: float) -> int:
    # With a tolerance: 8 * 0.15 / 0.8 is 1.4999999999999998 in floats and means 1.5.
    return math.floor(value + 0.5 + TOLERANCE)
