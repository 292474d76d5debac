"""The arms of a comparison: what each trains, and where its tasks come from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from schemas.enums import Arm


class TaskSet(StrEnum):
    """Where the tasks of an epoch come from."""

    NEW = "new"
    """pi_env writes them for this epoch."""
    FIRST = "first"
    """pi_env writes them once; every epoch plays the set of epoch 1."""
    TEACHER = "teacher"
    """They come from a teacher: windows of `teacher.file`, or a set that a model writes once."""


@dataclass(frozen=True, slots=True)
class ArmSpec:
    """What one arm does, in words (`does`), which policies it trains, and where tasks come from."""

    does: str
    trains_agent: bool = True
    trains_env: bool = False
    tasks: TaskSet = TaskSet.NEW

    def one_set(self, by_model: bool) -> bool:
        """Return whether the tasks of all epochs are one set, written for epoch 1.

        `by_model` says that a teacher is a model, not a file.
        """
        return self.tasks is TaskSet.FIRST or (self.tasks is TaskSet.TEACHER and by_model)


ARMS: dict[Arm, ArmSpec] = {
    Arm.GENENV: ArmSpec("both policies are trained", trains_env=True),
    Arm.RANDOM: ArmSpec("pi_env is never updated"),
    Arm.STATIC: ArmSpec("one set of tasks, generated before epoch 1", tasks=TaskSet.FIRST),
    Arm.OFFLINE: ArmSpec("tasks of a teacher: a file or a model", tasks=TaskSet.TEACHER),
    Arm.BASE: ArmSpec("no training", trains_agent=False),
}
"""Every arm; a new one is a member of `schemas.enums.Arm` and its record here."""
