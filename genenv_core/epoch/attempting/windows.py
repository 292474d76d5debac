"""Windows of a set: which of its tasks an epoch attempts."""

from __future__ import annotations

from dataclasses import dataclass

from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.curriculum import GenerationConfig


@dataclass(frozen=True, slots=True)
class Window:
    """`count` tasks of a set from place `first` on; the first task follows the last."""

    first: int
    count: int

    def places(self, size: int) -> list[int]:
        """Return the places in a set of `size` tasks, each once: at most the whole set."""
        return [(self.first + offset) % size for offset in range(min(self.count, size))]


def window_of(config: RunConfig, epoch: int) -> Window | None:
    """Return what an epoch, from 1, attempts of the run's set; None: all of the epoch's tasks."""
    count = config.generation.tasks
    return Window((epoch - 1) * count, count) if config.data.set_tasks else None


def of_a_set(settings: GenerationConfig, tasks: int) -> GenerationConfig:
    """Return the settings that write a set of `tasks` tasks, all of them to attempt."""
    return settings.model_copy(update={"tasks": tasks, "candidates": 1})
