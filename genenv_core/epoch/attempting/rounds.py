"""Decides how many further tasks an epoch attempts, because groups of attempts had no signal.

DAPO (arXiv 2503.14476, section 3.2, dynamic sampling) samples until a batch is full of groups whose
rewards differ. Here an epoch takes tasks from a reserve in a fixed order, in rounds. A round has as
many tasks as the epoch lacks groups, so no refill gives it more groups with a signal than it wants.
The size follows from counts alone: no clock and no worker decides it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refill:
    """How many `groups` with a signal an epoch wants, and the `most` new tasks that it attempts."""

    groups: int
    most: int

    def next_round(self, *, with_signal: int, attempted: int, reserve: int) -> int:
        """Return how many tasks of the reserve to attempt next; 0 ends the rounds.

        Args:
            with_signal: groups of new tasks that have a signal.
            attempted: new tasks attempted so far.
            reserve: tasks that the reserve still has.
        """
        return max(0, min(self.groups - with_signal, self.most - attempted, reserve))
