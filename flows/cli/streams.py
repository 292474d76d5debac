"""Replaces standard output, input and error, so that `genenv` bears closed, full and ASCII streams.

A closed pipe ends the command as the signal SIGPIPE would: without a word, with status 141, which
shells and `set -o pipefail` know. A full disk ends it with an error of one line. Output to a stream
that was closed from the start goes nowhere, as into /dev/null, and the work goes on; so does output
to a terminal that is gone, whether no SIGHUP comes (`genenv run & disown`) or it comes a moment
later. Characters that the terminal lacks become question marks.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from typing import Any, cast

from flows.running.signals import discard

CLOSED_PIPE = 141


class OutputLost(Exception):  # no GenenvError: those may be about one part of the work
    """Standard output takes no more: its reader is gone, or its disk is full."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output: {error.strerror}")
        self.quiet = error.errno == errno.EPIPE
        self.exit_status = CLOSED_PIPE if self.quiet else 1


class _Out(io.FileIO):
    """Standard output; drops what comes after a failure, so that one error reports it."""

    lost: OutputLost | None = None

    def write(self, data: object, /) -> int:
        """Write; raises OutputLost at the first failure, but for a terminal that is gone."""
        try:
            return super().write(data)  # pyright: ignore[reportArgumentType]
        except OSError as error:
            gone = error.errno == errno.EIO and _is_device(self.fileno())
            size = _dropped(self.fileno(), data)
            if gone:
                return size
            self.lost = OutputLost(error)
            raise self.lost from error


class _Err(io.FileIO):
    """Standard error, which has no place to complain to."""

    def write(self, data: object, /) -> int:
        """Write what can be written."""
        try:
            return super().write(data)  # pyright: ignore[reportArgumentType]
        except OSError:
            return _dropped(self.fileno(), data)


def _dropped(number: int, data: object) -> int:
    """Let a descriptor write to nowhere; returns the bytes of `data`, as if they were written."""
    discard(number)
    return memoryview(data).nbytes  # pyright: ignore[reportArgumentType]


def _is_device(number: int) -> bool:
    """Return whether an error of input or output means that a terminal is gone.

    `isatty` says no of a terminal that is gone. A file on a disk is no character device.
    """
    return stat.S_ISCHR(os.fstat(number).st_mode)


def open_streams() -> None:
    """Replace the interpreter's streams; those that a caller has replaced already stay."""
    started = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    for number, stream in enumerate(started):
        if stream is None:
            discard(number)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(_Out(1, "w", closefd=False), sys.__stdout__, "replace")
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Err(2, "w", closefd=False), sys.__stderr__, "backslashreplace")


def flushed() -> OutputLost | None:
    """Write what is held back; returns why output was lost, now or earlier, if it was."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OutputLost as lost:
            return lost
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.lost if isinstance(raw, _Out) else None


def _text(raw: io.FileIO, before: Any, errors: str) -> io.TextIOWrapper:
    """Return a stream of text that buffers as the one before it."""
    known = cast("io.TextIOWrapper[Any]", before) if isinstance(before, io.TextIOWrapper) else None
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=known.encoding if known else "utf-8",
        errors=errors,
        line_buffering=known.line_buffering if known else False,
        write_through=known.write_through if known else False,
    )
