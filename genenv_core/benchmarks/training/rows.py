"""Training tasks that a benchmark draws by level, or takes from a user's own rows."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic

from genenv_core.benchmarks.training.benchmark_domain import BenchmarkDomain, Options
from genenv_core.benchmarks.training.own_tasks import MORE_ROWS, chosen, read_rows
from genenv_core.domains.kit.levels import SeededTasks, drawn_turn
from genenv_core.domains.protocol import SeedExample, SolutionTurn
from genenv_core.types import TaskDraft


class RowsOrDrawn(SeededTasks, BenchmarkDomain[Options], Generic[Options]):
    """A benchmark domain that trains on the user's rows, or without rows on drawn tasks."""

    more_tasks = MORE_ROWS

    def __init__(self, options: Options) -> None:
        """Read the download; raises ConfigError or DataError."""
        super().__init__(options)
        self._rows: list[TaskDraft] = []

    def take_rows(self, train: str | None) -> None:
        """Train on the rows of a JSONL file, and add their digest to the domain's version.

        Raises ConfigError for a missing file, DataError for a broken row.
        """
        if not train:
            return
        path = Path(train)
        rows, digest = read_rows(path)
        self._rows = [self.row(path, number, row) for number, row in enumerate(rows, 1)]
        self.version += f"-{digest[:16]}"

    @abstractmethod
    def row(self, path: Path, number: int, row: Any) -> TaskDraft:
        """Return the task of a row, `number` from 1; raises DataError for a broken one."""

    @abstractmethod
    def solution(self, draft: TaskDraft) -> list[SolutionTurn]:
        """Return the turns of a right attempt; raises DomainError for an item."""

    def one_turn(self, draft: TaskDraft, rng: random.Random) -> SeedExample:
        """Return a right attempt up to one of its turns, and what the agent says there."""
        return drawn_turn(self, draft, rng)

    def distinct_tasks(
        self,
        rng: random.Random,
        count: int,
        pick: Callable[[Sequence[int]], int],
        *,
        heldout: bool,
    ) -> list[TaskDraft]:
        """Return `count` distinct tasks, all inside or outside the held-out bucket.

        They are the user's rows, or without rows tasks of the levels that `pick` chooses. Raises
        ConfigError where there are fewer.
        """
        if self._rows:
            return chosen(self._rows, rng, count, heldout=heldout, domain=self.name)
        return super().distinct_tasks(rng, count, pick, heldout=heldout)
