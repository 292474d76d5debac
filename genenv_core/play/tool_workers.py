"""A bounded number of threads that run tools, each step with a time limit.

Nothing can end a thread from outside. So the workers give up a step that is over its limit: they
drop its answer, should it ever come, and another thread takes the place of the stuck one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

from genenv_core.domains.steps import failure
from genenv_core.engines.sessions import Mailbox
from genenv_core.errors import DomainError
from genenv_core.types import Observation

MOST_STUCK = 256
"""Most threads stuck in steps that never end; with more of them, the stage fails."""


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """The outcome of a step; `lost` says that the workers gave it up, and its episode with it."""

    tag: int
    observation: Observation
    lost: bool = False


@dataclass(eq=False, slots=True)
class _StepJob:
    tag: int
    work: Callable[[], Observation]
    deadline: float = float("inf")


class ToolWorkers:
    """Runs steps beside the thread that drives the episodes. `close` it at the end.

    Args:
        workers: steps that run side by side, at least 1.
        timeout_s: longest step in seconds, counted from where a worker begins it.
        mailbox: receives a call when a worker is done.
    """

    def __init__(self, workers: int, timeout_s: float, mailbox: Mailbox) -> None:
        self._workers, self._timeout_s, self._mailbox = workers, timeout_s, mailbox
        self._jobs: SimpleQueue[_StepJob | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._running: set[_StepJob] = set()
        self._threads = self._stuck = self._unfinished = 0
        self._answers: list[StepAnswer] = []

    def submit(self, tag: int, work: Callable[[], Observation]) -> None:
        """Run a step as soon as a worker is free."""
        self._unfinished += 1
        if self._threads < min(self._workers, self._unfinished):
            self._start()
        self._jobs.put(_StepJob(tag, work))

    def collect(self) -> list[StepAnswer]:
        """Return the answers since the last call, and a failure for each step over its limit.

        Raises DomainError with more than `MOST_STUCK` steps over their limit and still running.
        """
        now = time.monotonic()
        with self._lock:
            late = [job for job in self._running if job.deadline <= now]
            self._running.difference_update(late)
            self._stuck += len(late)
        if self._stuck > MOST_STUCK:
            raise DomainError(
                f"{self._stuck} steps of tools are over tools.timeout_s {self._timeout_s:g} and "
                "still at work: repair the domain's tools, or give them time limits of their own"
            )
        for job in late:
            self._start()
            self._threads -= 1  # the stuck one no longer counts
            error = TimeoutError(f"the tools gave no answer within {self._timeout_s:g} s")
            self._answers.append(StepAnswer(job.tag, failure(error), lost=True))
        answers = self._answers.copy()
        self._answers.clear()  # in place: the mailbox holds calls that append to it
        self._unfinished -= len(answers)
        return answers

    def patience(self) -> float:
        """Return the seconds until a running step may be over its limit; at most the limit."""
        with self._lock:
            first = min((job.deadline for job in self._running), default=float("inf"))
        return max(0.0, min(self._timeout_s, first - time.monotonic()))

    def close(self) -> None:
        """Let free workers end, without waiting for them."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _start(self) -> None:
        self._threads += 1
        # A daemon: a step that hangs must not keep the process from ending.
        threading.Thread(target=self._serve, name="genenv-tools", daemon=True).start()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.deadline = time.monotonic() + self._timeout_s
            with self._lock:
                self._running.add(job)
            answer = StepAnswer(job.tag, job.work())
            with self._lock:
                if job not in self._running:  # given up, and another worker took this one's place
                    self._stuck -= 1
                    return
                self._running.remove(job)
            self._mailbox.put(partial(self._answers.append, answer))
