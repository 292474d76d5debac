"""Ends a run cleanly before its last stage: at a command's end, at a limit, or when cancelled.

Inside `stopping`, no stage after the end starts. The work that would need it ends there, once the
stages beside it are finished. This is no failure, so no flow run or stage task is Failed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from prefect.exceptions import CancelledRun
from prefect.states import Cancelled

from genenv_core.config.until import Until
from genenv_core.errors import Stopped, one_line
from genenv_core.spending.spent import Reached
from tasks.stage import progress

T = TypeVar("T")


class Waitable(Protocol):
    """A stage at work."""

    def result(self) -> Any:
        """Wait for its output and return it; raises what the stage raised."""
        ...


class BudgetLeft(Protocol):
    """What a run may still spend."""

    def reached(self, epoch: int) -> tuple[Reached, ...]:
        """Return the limits reached before the next stage, which is of this epoch."""
        ...


class Ended(Exception):
    """The next stage comes after the end."""


class End:
    """The end of a command's work, and the stages that the command has started.

    `reached` are the limits that ended the work, `passed` the (epoch, stage) before the end.
    """

    def __init__(self, until: Until | None, budget: BudgetLeft | None = None) -> None:
        """Set the end: a last stage, a budget, or both."""
        self._until, self._budget = until, budget
        self._started: list[Waitable] = []
        self.reached: tuple[Reached, ...] = ()
        self.passed: set[tuple[int, str]] = set()

    def check(self, stage: str, epoch: int, is_stored: Callable[[], bool]) -> None:
        """Raise Ended when a stage comes after the end.

        A limit lets a stage pass that `is_stored`: reusing it costs nothing.
        """
        if self._until and not self._until.covers(stage, epoch):
            raise Ended
        reached = self._budget.reached(epoch) if self._budget else ()
        if reached and not is_stored():
            self.reached = reached
            raise Ended
        self.passed.add((epoch, stage))

    def started(self, stage: Waitable) -> None:
        """Note a stage that may still be at work when the end comes."""
        self._started.append(stage)

    def wait(self) -> None:
        """Return once every started stage is finished; raises what a stage raised."""
        for stage in self._started:
            stage.result()


_end: ContextVar[End | None] = ContextVar("end", default=None)


@contextlib.contextmanager
def stopping(until: Until | None, budget: BudgetLeft | None = None) -> Generator[End | None]:
    """Start no stage after the end inside the block; yields the end, None without one."""
    end = End(until, budget) if until or budget else None
    token = _end.set(end)
    try:
        yield end
    finally:
        _end.reset(token)


def current_end() -> End | None:
    """Return the end that `stopping` set, None outside of it."""
    return _end.get()


def to_the_end(work: Callable[[], T]) -> T | None:
    """Return what `work` returns, None when the end came first; raises what a stage raised."""
    try:
        return work()
    except Ended:
        end = current_end()
        if end:
            end.wait()
        return None


def or_cancelled(work: Callable[[], T]) -> T:
    """Return what `work` returns, or Prefect's cancelled state where somebody ended the run.

    The function of a flow or a stage task returns that in turn, and Prefect raises CancelledRun
    with the message where someone asks for the result. The exception of `work` itself would leave
    flow or task Failed or Crashed, with a traceback, although it has not failed.
    """
    ended: Any
    try:
        return work()
    except progress.Cancelled:
        ended = Cancelled(message="the run was cancelled: Retry, or the same command, goes on")
    except (Stopped, CancelledRun) as error:
        ended = Cancelled(message=one_line(error))
    return ended
