"""Progress of stages as small events, for a terminal or a log; nobody has to listen."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

EventKind = Literal["started", "waiting", "advanced", "finished", "failed", "run"]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    `state` of a finished stage is computed or cached, of a failed one failed or interrupted.

    An advanced event has `done` of `total` units and their `unit` (groups, steps, ...). `facts` of
    a finished stage are its manifest's. A waiting stage says in `message` for whom. The kind `run`
    opens a run; its facts name it.
    """

    kind: EventKind
    stage: str = ""
    epoch: int = 0
    state: str = ""
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
    """Tell every listener, one event at a time; raises Cancelled once the run was cancelled."""
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
def listening(listener: Callable[[Event], None]) -> Iterator[None]:
    """Send events to `listener` inside the block."""
    _cancelled.clear()
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
