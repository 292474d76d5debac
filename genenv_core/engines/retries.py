"""Work that was lost to an engine or an environment, and is done again with the same seeds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from genenv_core.engines.protocol import Engine
from genenv_core.types import Completion, FinishReason, SampleRequest, SamplingParams

LOOK_S = 0.5
"""Longest wait between two looks at whether the run was cancelled."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often what was lost is tried again, and how long it waits before.

    Args:
        tries: at most so many times; 0: never.
        pause_s: seconds before the first of them; each later one waits twice as long.
        check: called while it waits; what it raises ends the stage.
    """

    tries: int = 0
    pause_s: float = 0.0
    check: Callable[[], None] = lambda: None

    def wait(self, number: int) -> None:
        """Wait before the try of this number, from 1."""
        end = time.monotonic() + self.pause_s * 2.0 ** (number - 1)
        self.check()
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(LOOK_S, left))
            self.check()


NEVER = Retries()


class Patient:
    """An engine that is asked again for what failed, with the same seeds.

    What fails each time is a completion with finish reason `error`. Attempts need no such engine:
    they are made again as a whole.
    """

    def __init__(self, engine: Engine, retries: Retries) -> None:
        """Ask nothing yet; the engine belongs to this one, which closes it."""
        self._engine, self._retries = engine, retries

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        """Return one completion a request, in order; raises EngineError as the engine does."""
        made = self._engine.sample(requests, params)
        for number in range(1, self._retries.tries + 1):
            lost = [at for at, done in enumerate(made) if done.finish_reason is FinishReason.ERROR]
            if not lost:
                break
            self._retries.wait(number)
            again = self._engine.sample([requests[at] for at in lost], params)
            for at, done in zip(lost, again, strict=True):
                made[at] = done
        return made

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()
