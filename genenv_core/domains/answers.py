"""The optional ReadsAnswers protocol: tasks from a prompt and its answer, as in data sets."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from genenv_core.types import Rejected, TaskDraft


@runtime_checkable
class ReadsAnswers(Protocol):
    """A domain that makes a task of what verl-style data holds.

    Without it, base tasks come from programs alone, the texts that pi_env writes.
    """

    def from_answer(self, prompt: str, ground_truth: str) -> TaskDraft | Rejected:
        """Return the task, or why it is none; never raises on bad text."""
        ...
