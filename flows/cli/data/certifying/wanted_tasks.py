"""How many tasks of a domain `genenv certify` looks at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from genenv_core.play.checking.sets import SetTask

BASE, HELDOUT = 200, 100
"""Tasks that a domain is asked for: with no flaw in 300, fewer than 1.3 % of more have one."""


class WantedTasks(NamedTuple):
    """Base tasks and held-out tasks; of the sets in `fewer` ("base", "heldout") fewer will do."""

    base: int
    heldout: int
    fewer: tuple[str, ...] = ()

    @classmethod
    def of(cls, base: int | None, heldout: int | None) -> WantedTasks:
        """Return what was asked for; None is as many as usual, or all that there are."""
        given = {"base": base, "heldout": heldout}
        fewer = tuple(name for name, count in given.items() if count is None)
        return cls(BASE if base is None else base, HELDOUT if heldout is None else heldout, fewer)

    def short_of(self, base: int, heldout: int) -> str:
        """Return words for a domain that had fewer; '' where it had enough."""
        return "; it has no more" if (base, heldout) != (self.base, self.heldout) else ""


def set_sizes(tasks: Sequence[SetTask]) -> tuple[int, int]:
    """Return how many of the tasks are base tasks, and how many held-out tasks."""
    sets = Counter(one.set_name for one in tasks)
    return sets["base"], sets["heldout"]
