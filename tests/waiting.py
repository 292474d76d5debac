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


def until(look: Callable[[], Found | None], bound_s: float = BOUND_S) -> Found:
    """Call `look` until it returns something true; returns that."""
    deadline = time.monotonic() + bound_s
    while True:
        if found := look():
            return found
        assert time.monotonic() < deadline, f"not within {bound_s:.0f} s: {look.__qualname__}"
        time.sleep(0.01)
