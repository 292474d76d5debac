"""Files that people name: says whether one is readable, where a path leads, and writes output."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a directory",
}
_OPEN_ALREADY = ("/dev/fd", "/dev/stdin", "/proc/self/fd")


def unreadable(path: Path, *, once: bool = False) -> str | None:
    """Return why a file cannot be read, with a remedy; None for a readable one.

    A caller that reads the file `once`, from its start to its end, may name a pipe that the shell
    has opened, as of `<(command)`. Other pipes would wait for a writer, and devices may have no
    end.
    """
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except (OSError, ValueError) as error:
        return str(getattr(error, "strerror", None) or error)
    if kind == stat.S_IFREG:
        return None if os.access(path, os.R_OK) else "Permission denied"
    if once and kind != stat.S_IFDIR and str(path).startswith(_OPEN_ALREADY):
        return None
    what = _KINDS.get(kind, "no file")
    return f"it is {what}, not a file" + ("" if kind == stat.S_IFDIR else ": write a file first")


def looked_for(path: Path) -> str:
    """Return where a relative path leads from here, for the error of a missing file; else ''."""
    return "" if path.is_absolute() else f" (looked for {path.absolute()})"


def write_output(path: Path, data: bytes) -> None:
    """Write a file that somebody named; raises OSError, whose `strerror` is for people."""
    with open_special(path) or path.open("wb") as file:
        file.write(data)


def open_special(path: Path) -> IO[bytes] | None:
    """Open a device or a pipe that somebody named for output; return None for files and new names.

    The caller writes into pipes and devices instead of replacing them: a finished file that it
    moved there would replace even /dev/null. Raises OSError as `write_output`, also for a named
    pipe without a reader, for which opening would wait for ever.
    """
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except OSError:  # it is new, or writing says why not
        return None
    if kind in (stat.S_IFREG, stat.S_IFDIR):
        return None
    if kind != stat.S_IFIFO:
        return path.open("wb")
    try:
        handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:
            error.strerror = "it is a named pipe that nobody reads: begin to read it first"
        raise
    os.set_blocking(handle, True)
    return open(handle, "wb")
