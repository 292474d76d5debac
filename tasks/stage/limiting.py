"""The limits of a run: adds up what it has spent, ends it there, and says so."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from genenv_core.config.load import run_name
from genenv_core.config.schema import RunConfig
from genenv_core.config.until import Until, stages_of
from genenv_core.spending.spent import Reached, Spent, reached, spent_on
from genenv_core.spending.stop import facts_of, listed, said_of
from genenv_core.storage.records.runs import RunLog
from tasks.stage.context import log
from tasks.stage.progress import Event, emit
from tasks.stage.stopping import End, stopping
from tasks.stage.stores import artifacts_of


class RunBudget:
    """What a run has spent by its recorded history, against its limits.

    `reached` reads the whole history once, then only the epoch at work and the one before it.
    """

    def __init__(self, config: RunConfig) -> None:
        """Open the history of a run without reading it."""
        self._config = config
        self._run = RunLog(artifacts_of(config.root).store, run_name(config, "run"))
        self._sums: dict[int, Spent] | None = None
        self._last = 0

    @property
    def spent(self) -> Spent:
        """Return the spending as of the last reading of the history."""
        return sum((self._sums or {}).values(), Spent())

    def reached(self, epoch: int) -> tuple[Reached, ...]:
        """Return the limits reached before the next stage, which is of this epoch."""
        if self._sums is None:
            self._sums, wanted = {}, None
        else:
            wanted = {epoch, self._last}
        self._last = epoch
        attempts = self._run.attempts(wanted)
        for number in {one.epoch for one in attempts}:
            of_epoch = [one for one in attempts if one.epoch == number]
            self._sums[number] = spent_on(of_epoch, self._config)
        return reached(self.spent, self._config.limits)


@contextlib.contextmanager
def within_limits(
    config: RunConfig, until: Until | None = None, *, taken: int | None = None
) -> Generator[End | None]:
    """End the work of the block at the limits of a run or after `until`, and say so.

    `taken` is the last epoch that a branch has taken over. Yields the end, None without one.
    """
    budget = RunBudget(config) if config.limits.given else None
    if budget and (already := budget.reached(0)):
        _tell(f"{listed(already)} already: what is stored is reused, nothing is computed")
    with stopping(until, budget) as end:
        yield end
    if budget and end and end.reached:
        _tell_end(config, end, budget.spent, -1 if taken is None else taken)


def _tell_end(config: RunConfig, end: End, spent: Spent, taken: int) -> None:
    left = [one for one in stages_of(config) if one not in end.passed and one[0] > taken]
    _tell(said_of(end.reached, left), facts_of(config, end.reached, spent, left))


def _tell(message: str, facts: dict[str, object] | None = None) -> None:
    log.info("limit: %s", message)
    emit(Event("limit", message=message, facts=dict(facts or {})))
