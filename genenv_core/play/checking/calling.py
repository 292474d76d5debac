"""Calls of a domain's methods while it is checked: what they raise is a fault, and so is a hang."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from genenv_core.play.asked import line_of, raised
from genenv_core.play.checking.shapes import Stop
from genenv_core.play.steps import FAILURES

Value = TypeVar("Value")

CALL_S = 30.0
"""Longest time for one call: a run makes thousands of them."""


class _Over(BaseException):
    """The time is over; no `except Exception` of a domain may keep it."""


def called(method: str, call: Callable[[], Value], *, more_s: float = 0.0) -> Value:
    """Return what a method gives; raises Stop where it raises or takes too long."""
    try:
        with limited(method, more_s=more_s):
            return call()
    except Stop:
        raise
    except FAILURES as error:
        raise Stop(method, raised(error), "mend the method") from error


@contextmanager
def limited(method: str, on: str = "", *, more_s: float = 0.0) -> Generator[None]:
    """Raise Stop where what is inside takes too long.

    By a signal, because a regular expression at work lets no other thread in; so only the main
    thread has a limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    place: list[str] = []

    def over(number: int, frame: FrameType | None) -> None:
        place.append(line_of(frame))
        raise _Over

    limit, started = CALL_S + more_s, time.monotonic()
    before = signal.signal(signal.SIGALRM, over)
    left, interval = signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    except _Over:
        pass
    finally:
        rest = max(left - (time.monotonic() - started), 0.001) if left else 0.0
        signal.setitimer(signal.ITIMER_REAL, rest, interval)
        signal.signal(signal.SIGALRM, before)
    if place:
        raise Stop(
            method,
            f"takes longer than {limit:g} s{on}{place[0]}",
            "answer at once; a regular expression with a repetition inside of another one can take "
            "ages on a long text",
        )
