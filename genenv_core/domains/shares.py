"""How much of a run each of its domains gets, by the rule of largest remainders.

Of `count` places a domain has its exact share rounded down, and the places left over go to those
whose exact shares lose most by that (Hamilton's method of apportionment).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Shares:
    """The share of each domain in a run: weights by name, empty in a run of one domain.

    The family of a task begins with the name of its domain, as in `desk/k3`.
    """

    weights: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the domains in order; a run of one domain has ''."""
        return tuple(self.weights) or ("",)

    def domain_of(self, family: str | None) -> str:
        """Return the name of a family's domain; '' in a run of one domain."""
        return (family or "").partition("/")[0] if self.weights else ""

    def split(self, count: int, least: int = 1) -> dict[str, int]:
        """Return how many of `count` each domain gets; the largest remainders round up.

        Each domain gets at least `least`, or an equal part of `count` if that is less; the domains
        with the most give places away.
        """
        weights = self.weights or {"": 1.0}
        total = sum(weights.values())
        exact = {name: count * weight / total for name, weight in weights.items()}
        found = {name: int(share) for name, share in exact.items()}
        order = sorted(weights, key=lambda name: found[name] - exact[name])
        for name in order[: count - sum(found.values())]:
            found[name] += 1
        least = min(least, count // len(found))
        while min(found.values()) < least:
            found[max(found, key=found.__getitem__)] -= 1
            found[min(found, key=found.__getitem__)] += 1
        return found

    def within(self, count: int, there: Mapping[str, int]) -> dict[str, int]:
        """Return how many of `count` each domain gets, at most as many as `there` has of it.

        The others share the places that a domain cannot fill by their weights, again and again,
        until all `count` are given out or no domain has more.
        """
        found = dict.fromkeys(self.names, 0)
        left = min(count, sum(there.get(name, 0) for name in found))
        while left:
            open_ = [name for name in found if there.get(name, 0) > found[name]]
            weights = {name: self.weights.get(name, 1.0) for name in open_}
            for name, share in Shares(weights).split(left).items():
                taken = min(share, there[name] - found[name])
                found[name] += taken
                left -= taken
        return found

    def mixed(self, count: int, least: int = 1) -> list[str]:
        """Return the domain of each of `count` places; every beginning of them keeps the shares."""
        split = self.split(count, least)
        taken = dict.fromkeys(split, 0)
        places: list[str] = []
        for place in range(1, count + 1):
            behind = {name: split[name] * place / count - taken[name] for name in split}
            places.append(max(behind, key=behind.__getitem__))
            taken[places[-1]] += 1
        return places
