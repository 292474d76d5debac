"""Gives memory that a process no longer uses back to the system. Light: no library is loaded."""

from __future__ import annotations

import ctypes


def trim() -> None:
    """Give back what this process has freed and its allocator keeps; does nothing without glibc.

    glibc keeps it by the thread that asked for it. Stages compute in threads of a pool, so the
    process would grow with the number of threads that held a model.
    """
    if (trimming := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trimming(0)
