"""Sends the progress of stages as small events, to a terminal, a log, or nobody."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Literal

from schemas.enums import StageState

EventKind = Literal[
    "started",
    "waiting",
    "advanced",
    "finished",
    "failed",
    "run",
    "tracking",
    "root",
    "limit",
    "server",
    "disk",
]


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a run.

    The `state` of a finished stage is computed or cached, that of a failed one failed or
    interrupted. An advanced stage, or its named `part`, has finished `done` of `total` units
    (`unit`: groups, steps, ...); `message` says more, `pace` how fast it is, and `due` asks for a
    plain line. The `facts` of a finished stage are its manifest's. The `message` of a waiting stage
    says what it waits for, that of a reused one who computed it.

    The kind `run` opens a run; its facts name it. The `message` of the kind `tracking` says that
    MLflow is away or back, or that genenv sends no spans; that of `root`, that another root cannot
    be read; that of `server`, that the run's Prefect server has ended; that of `disk`, what the run
    has removed. The kind `limit` means that the run has reached a limit: its message says so, and
    its facts what is left. They are empty where the run goes on with stored outputs.
    """

    kind: EventKind
    stage: str = ""
    epoch: int = 0
    state: StageState | None = None
    seconds: float = 0.0
    done: int = 0
    total: int = 0
    unit: str = ""
    part: str = ""
    pace: str = ""
    due: bool = False
    message: str = ""
    facts: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def words(self) -> str:
        """Return how far an advanced stage, or a part of it, is."""
        counted = f"{self.done} of {self.total} {self.unit}"
        said = ", ".join(text for text in (counted, self.message, self.pace) if text)
        return f"{self.part}: {said}" if self.part else said


RATED_S = 2.0
"""Seconds of reports before a rate appears."""

RATED_UNITS = 32
"""Finished units before a rate appears, or a quarter of all if that is less: the first ones include
loading and compiling, and those attempted side by side end together."""

EVEN_UNITS = frozenset({"steps"})
"""Units of a training process, each as long as the next: the first one gives a rate."""

LINE_S = 30.0
"""Least time between two plain lines on the progress of one part of a stage."""


@dataclass(slots=True)
class Pace:
    """How fast a stage, or a part of it, is; `now` is seconds of a clock that never goes back."""

    began: tuple[int, float] | None = None
    said: float = 0.0

    def words(self, done: int, total: int, unit: str, now: float) -> str:
        """Return the rate since the first unit began, and the seconds left at that rate, or ''.

        In a stage that continues, only the units after its first report count.
        """
        if self.began is None or done <= self.began[0]:
            self.began = done, now  # a part that waits for its turn has not begun
        first, since = self.began
        enough = 1 if unit in EVEN_UNITS else min(RATED_UNITS, math.ceil((total - first) / 4))
        if done - first < max(1, enough) or now - since < RATED_S:
            return ""
        rate = (done - first) / (now - since)
        return f"{rate:.3g} a second, about {(total - done) / rate:.0f} s left"

    def due(self, now: float) -> bool:
        """Return whether `LINE_S` have passed since the first report or the last plain line."""
        self.said = self.said or now
        if now - self.said < LINE_S:
            return False
        self.said = now
        return True


class Paces:
    """The progress of one stage: makes its events, and keeps the last words of each part."""

    def __init__(self, stage: str, epoch: int) -> None:
        """Start without a report."""
        self._stage, self._epoch = stage, epoch
        self._paces: dict[str, Pace] = {}
        self._words: dict[str, str] = {}

    def event(self, done: int, total: int, unit: str, part: str = "", message: str = "") -> Event:
        """Return the event of a report."""
        pace, now = self._paces.setdefault(part, Pace()), time.monotonic()
        event = Event(
            "advanced", self._stage, self._epoch, done=done, total=total, unit=unit, part=part,
            pace=pace.words(done, total, unit, now), due=pace.due(now), message=message,
        )  # fmt: skip
        self._words[part] = event.words
        return event

    @property
    def words(self) -> str:
        """Return how far the stage is, the parts after each other."""
        return "; ".join(self._words.values())


_listeners: list[Callable[[Event], None]] = []
_lock = threading.Lock()
_cancelled = threading.Event()


class Cancelled(BaseException):
    """Raised inside a stage's thread after `cancel`; no error handler may swallow it."""


def emit(event: Event) -> None:
    """Pass an event to every listener, one at a time; raises Cancelled in a cancelled run."""
    with _lock:
        for listener in _listeners:
            listener(event)
    if event.kind in ("started", "advanced"):
        check()


def check() -> None:
    """Raise Cancelled in a cancelled run."""
    if _cancelled.is_set():
        raise Cancelled


def cancel() -> None:
    """Ask running stages to stop at their next sign of progress."""
    _cancelled.set()


@contextlib.contextmanager
def listening(listener: Callable[[Event], None]) -> Generator[None]:
    """Send events to `listener` inside the block."""
    _cancelled.clear()
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
