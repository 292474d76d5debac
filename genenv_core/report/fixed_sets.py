"""Fixed sets: pi_env chooses among their tasks and writes none."""

from __future__ import annotations

from dataclasses import dataclass

FIXED_SETS = "fixed_tasks"
"""Field of a run's first event that holds the sizes of its fixed sets, by domain."""


@dataclass(frozen=True, slots=True)
class FixedSet:
    """A row of the view `fixed_sets`: a domain of a run whose tasks are a fixed set.

    The run may train on `tasks` of them, and has attempted `played`; None before it begins.
    """

    domain: str
    tasks: int
    played: int | None = None

    @property
    def line(self) -> str:
        """Return the set as a sentence on one line."""
        said = (
            f"{self.domain}: pi_env writes no tasks and chooses among {self.tasks} that are there "
            "(a curriculum over a fixed set)"
        )
        return said if self.played is None else f"{said}; the run has played {self.played} of them"
