"""Tasks that nobody writes: a set that is there, of which pi_env only chooses."""

from __future__ import annotations

from dataclasses import dataclass

FIXED_SETS = "fixed_tasks"
"""What the event that opens a run calls the sizes of its fixed sets, by domain."""


@dataclass(frozen=True, slots=True)
class FixedSet:
    """A row of the view `fixed_sets`: a domain of a run whose tasks are a fixed set.

    `tasks` may be trained on, and `played` of them the run has attempted; None before it begins.
    """

    domain: str
    tasks: int
    played: int | None = None

    @property
    def line(self) -> str:
        """Return it in words, on one line."""
        said = (
            f"{self.domain}: pi_env writes no tasks and chooses among {self.tasks} that are there "
            "(a curriculum over a fixed set)"
        )
        return said if self.played is None else f"{said}; the run has played {self.played} of them"
