"""Waits for events, never for a time to pass.

A bound exists only to make a hang fail: a loaded machine must not reach it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")
BOUND_S = 240.0
"""Longest wait for anything that comes by itself."""

LOOK_S = 0.01
MOST_S = 0.5
"""Shortest and longest pause between two looks."""

SHARE = 9
"""A pause is so many times as long as the look before it."""


def until(look: Callable[[], Found | None], bound_s: float = BOUND_S) -> Found:
    """Call `look` until it returns something true; returns that.

    A look that takes long, as a question to a server does, is made less often: on two cores it
    would else take the time of the processes that it waits for.
    """
    deadline = time.monotonic() + bound_s
    while True:
        began = time.monotonic()
        if found := look():
            return found
        ended = time.monotonic()
        assert ended < deadline, f"not within {bound_s:.0f} s: {look.__qualname__}"
        time.sleep(min(max(LOOK_S, SHARE * (ended - began)), MOST_S))
