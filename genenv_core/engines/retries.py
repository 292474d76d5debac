"""Does work again, with the same seeds, that an engine or an environment lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from genenv_core.engines.protocol import Engine, Submits
from genenv_core.types import Completion, SampleRequest, SamplingParams

LOOK_S = 0.5
"""Longest wait between two looks at whether the run was cancelled."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a stage tries lost work again, and how long it waits before each try.

    Args:
        tries: the most further tries; 0: it never tries again.
        pause_s: seconds before the first of them; each later one waits twice as long.
        check: called during waits; what it raises ends the stage.
    """

    tries: int = 0
    pause_s: float = 0.0
    check: Callable[[], None] = lambda: None

    def pause(self, number: int) -> float:
        """Return the seconds before the try of this number, from 1."""
        return self.pause_s * 2.0 ** (number - 1)

    def wait(self, number: int) -> None:
        """Wait before the try of this number, from 1."""
        end = time.monotonic() + self.pause(number)
        self.check()
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(LOOK_S, left))
            self.check()


NEVER = Retries()


def batches(engine: Engine) -> bool:
    """Return whether an engine samples in this process: equal batches then give equal bits."""
    return not isinstance(engine, Submits)


class Patient:
    """An engine that asks another one again for what failed, with the same seeds.

    A request that fails each time becomes a completion with finish reason `error`. Attempts need no
    such engine: players make them again as a whole. The bits of a batch that this process samples
    depend on the whole batch. So after late answers it samples the batch once more as a whole: that
    gives the bits of an engine that never failed.
    """

    def __init__(self, engine: Engine, retries: Retries) -> None:
        """Ask nothing yet; the engine belongs to this one, which closes it."""
        self._engine, self._retries = engine, retries

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        """Return one completion a request, in order; raises EngineError as the engine does."""
        made = self._engine.sample(requests, params)
        late = False
        for number in range(1, self._retries.tries + 1):
            lost = [at for at, done in enumerate(made) if done.passing]
            if not lost:
                break
            late = True
            self._retries.wait(number)
            again = self._engine.sample([requests[at] for at in lost], params)
            for at, done in zip(lost, again, strict=True):
                made[at] = done
        if late and not any(done.passing for done in made) and batches(self._engine):
            again = self._engine.sample(requests, params)
            return made if any(done.passing for done in again) else again
        return made

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()
