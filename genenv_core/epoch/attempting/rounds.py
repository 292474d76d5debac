"""How many further tasks an epoch attempts, because groups of attempts had no signal.

DAPO (arXiv 2503.14476, section 3.2, dynamic sampling) samples until a batch is full of groups whose
rewards differ. Here the tasks are taken from a reserve in a fixed order, in rounds: a round is as
large as the number of groups that are lacking, so an epoch never has more groups with a signal than
it wants because of a refill. The size follows from counts alone, and no clock or worker decides it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refill:
    """`groups` with a signal that an epoch wants, and the `most` new tasks that it attempts."""

    groups: int
    most: int

    def next_round(self, *, with_signal: int, attempted: int, reserve: int) -> int:
        """Return how many tasks of the reserve to attempt next; 0: the epoch has what it can have.

        Args:
            with_signal: groups of new tasks that have a signal.
            attempted: new tasks attempted so far.
            reserve: tasks that the reserve still has.
        """
        return max(0, min(self.groups - with_signal, self.most - attempted, reserve))
