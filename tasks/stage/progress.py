"""Progress of stages as small events, for a terminal or a log; nobody has to listen."""

from __future__ import annotations

import contextlib
import threading
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
]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    The `state` of a finished stage is computed or cached, that of a failed one failed or
    interrupted. An advanced stage has finished `done` of `total` units (`unit`: groups, steps,
    ...). The `facts` of a finished stage are its manifest's. The `message` of a waiting stage says
    what it waits for, that of a reused one who computed it. The kind `run` opens a run; its facts
    name it. The `message` of the kind `tracking` says that MLflow is away, or that it is back, or
    that no spans are sent, that of the kind `root` that another root cannot be read, that of
    the kind `server` that the run's Prefect server has ended. A `limit` is
    reached; the message says so, and the facts what is left, or nothing where the run goes on with
    what is stored.
    """

    kind: EventKind
    stage: str = ""
    epoch: int = 0
    state: StageState | None = None
    seconds: float = 0.0
    done: int = 0
    total: int = 0
    unit: str = ""
    message: str = ""
    facts: dict[str, Any] = field(default_factory=dict[str, Any])


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
    """Raise Cancelled once the run was cancelled."""
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
