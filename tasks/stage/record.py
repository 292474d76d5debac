"""The attempt at a stage in the record of its run: who made it, how it ended, how long it took."""

from __future__ import annotations

import os
import socket
import time
from datetime import UTC, datetime
from typing import Any

from genenv_core.storage.process import identity
from genenv_core.storage.runs import Attempt, RunLog, StageState


class AttemptRecord:
    """One attempt at a stage by this process; nothing is written before `begin` or `end`."""

    def __init__(self, run: RunLog, stage: str, epoch: int, key: str) -> None:
        """Start the clock of an attempt."""
        started, self._clock = datetime.now(UTC), time.perf_counter()
        self._run = run
        self._attempt = Attempt(
            run_id=run.run_id,
            epoch=epoch,
            stage=stage,
            stage_key=key,
            state="running",
            host=socket.gethostname(),
            pid=os.getpid(),
            process=identity(os.getpid()),
            started_at=started,
        )
        self.begun = False

    @property
    def seconds(self) -> float:
        """Return how long ago the attempt started."""
        return time.perf_counter() - self._clock

    def begin(self) -> int:
        """Write that the computation begins; returns the number of the attempt, from 1."""
        self._attempt, self.begun = self._run.begin(self._attempt), True
        return self._attempt.attempt

    def end(self, state: StageState, **values: Any) -> None:
        """Write how it ended, with what else is known; the only event of one that never began."""
        seconds = round(self.seconds, 4)
        last = self._attempt.model_copy(update={"state": state, "seconds": seconds, **values})
        (self._run.end if self.begun else self._run.begin)(last)


def failures(run: RunLog, epoch: int, stage: str) -> int:
    """Return how many attempts at a stage of a run have told that they did not succeed."""
    told = ("failed", "interrupted")
    attempts = [a for a in run.attempts([epoch]) if a.stage == stage and a.seconds is not None]
    return sum(attempt.state in told for attempt in attempts)
