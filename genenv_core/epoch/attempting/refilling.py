"""Attempts tasks of the reserve in place of those whose groups have no signal.

The stages `score` and `filter` lend their own code for that, on the attempts so far: a group has a
signal where `filter` would keep its task for the agent update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.curriculum import CurriculumConfig
from genenv_core.config.sections.rollout import most_tasks
from genenv_core.domains.protocol import Domain
from genenv_core.epoch.attempting.rounds import Refill
from genenv_core.epoch.rows import frame
from genenv_core.epoch.scoring import task_rows, verdicts_of, with_messages
from genenv_core.epoch.selecting import select
from genenv_core.types import Policy, Task, TaskSource

Play = Callable[[Sequence[Task]], tuple[pl.DataFrame, pl.DataFrame]]
"""Attempts tasks, and returns the rows of `traces` and `trace_tokens` of these attempts."""


def refill_of(config: RunConfig) -> Refill:
    """Return how an epoch refills groups without a signal, for a run that asks for it."""
    refill, written = config.refill, config.generation
    most = most_tasks(refill, tasks=written.tasks, candidates=written.candidates)
    return Refill(refill.groups, most)


def refilled(
    refill: Refill,
    tasks: Sequence[Task],
    reserve: Sequence[Task],
    play: Play,
    domain: Domain,
    *,
    epoch: int,
    curriculum: CurriculumConfig,
) -> dict[str, int]:
    """Attempt `tasks`, then rounds of the reserve; return counts for a stage's facts.

    A round begins when all attempts before it have ended, and these alone decide its size. So the
    rounds are the same for any number of workers, and when the stage resumes after a crash.

    Args:
        refill: how many groups the epoch wants.
        tasks: the chosen new tasks, and base tasks.
        reserve: further new tasks, in the order in which rounds take them.
        play: attempts tasks.
        domain: judges the attempts.
        epoch: number of the round.
        curriculum: decides which groups the agent update may use.
    """
    count = SignalCount(domain, epoch=epoch, curriculum=curriculum)
    taken = rounds = 0
    count.add(tasks, *play(tasks))
    while size := refill.next_round(
        with_signal=count.with_signal, attempted=count.attempted, reserve=len(reserve) - taken
    ):
        further = reserve[taken : taken + size]
        count.add(further, *play(further))
        taken, rounds = taken + size, rounds + 1
    return {"refilled": taken, "rounds": rounds, "with_signal": count.with_signal}


class SignalCount:
    """Groups of new tasks that the agent update may use, among the attempts so far."""

    def __init__(self, domain: Domain, *, epoch: int, curriculum: CurriculumConfig) -> None:
        self._domain, self._epoch, self._curriculum = domain, epoch, curriculum
        self._tasks: dict[str, Task] = {}
        self._traces: list[pl.DataFrame] = []
        self._verdicts: list[dict[str, Any]] = []

    def add(self, tasks: Sequence[Task], traces: pl.DataFrame, trace_tokens: pl.DataFrame) -> None:
        """Judge further attempts at `tasks`, rows of both tables; skip those at base tasks.

        Raises DomainError for an invalid verdict.
        """
        new = {one.task_id: one for one in tasks if one.source is not TaskSource.BASE}
        of_new = traces.filter(pl.col("task_id").is_in(list(new)))
        self._tasks |= new
        self._traces.append(of_new)
        self._verdicts += verdicts_of(with_messages(of_new, trace_tokens), new, self._domain)

    @property
    def attempted(self) -> int:
        """Return how many new tasks have attempts."""
        return len(self._tasks)

    @property
    def with_signal(self) -> int:
        """Return how many of their groups have a signal."""
        if not self._tasks:
            return 0
        traces = pl.concat(self._traces)
        sizes = dict(traces.group_by("group_id").len().iter_rows())
        rated = task_rows(
            self._verdicts, self._tasks, sizes, epoch=self._epoch, curriculum=self._curriculum
        )
        selected = select(
            frame("tasks", []),
            frame("task_scores", rated),
            traces,
            epoch=self._epoch,
            curriculum=self._curriculum,
        )
        return int(selected.facts[f"kept_{Policy.AGENT.value}"])
