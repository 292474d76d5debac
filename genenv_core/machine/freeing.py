"""Gives memory that a process no longer uses back to the system. Light: loads no library."""

from __future__ import annotations

import ctypes


def trim() -> None:
    """Give back what this process has freed and its allocator keeps; does nothing without glibc.

    glibc keeps freed memory for the thread that asked for it. Stages compute in threads of a pool,
    so the process would grow with the number of threads that held a model.
    """
    if (trimming := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trimming(0)
