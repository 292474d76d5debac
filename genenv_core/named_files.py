"""Files that people name: whether one can be read or written, where it is, and writing it."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
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


def unwritable(path: Path, *, folder: bool = False) -> str | None:
    """Return why a file cannot be written, and what to do; None for one that can, and for a pipe.

    A command asks before its work. With `folder` it is about a folder, which is made with those
    above it. The probe is a file without a name where the system has such, and leaves nothing.
    """
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except FileNotFoundError:
        kind = 0  # it is new
    except (OSError, ValueError) as error:
        return why_not_written(path, error)
    if kind == stat.S_IFDIR and not folder:
        return f"it is a directory: name a file in it, as in {path / 'NAME'}"
    if folder and kind not in (0, stat.S_IFDIR):
        return "it is there and is no folder: name another one"
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return None
    place = Path(os.path.realpath(path))  # Path.resolve() fails where links are a circle
    above = place if folder else place.parent
    while folder and not os.path.lexists(above):
        above = above.parent
    try:
        with tempfile.TemporaryFile(dir=above):
            return None
    except OSError as error:
        return why_not_written(above / place.name if folder else path, error)


def why_not_written(path: Path, error: OSError | ValueError, *, folder: bool = False) -> str:
    """Return why a file was not written, or a `folder` not made, and what to do."""
    if folder and (why := unwritable(path, folder=True)):
        return why
    above = Path(os.path.realpath(path)).parent
    number = getattr(error, "errno", None)
    if number == errno.ENOENT and not os.path.isdir(above):
        return f"there is no folder {above}: make it, or name another place"
    remedy = {
        errno.ENOENT: f"the file system of {above} takes no new files: name another place",
        errno.EACCES: f"writing into {above} is not permitted: name another place",
        errno.EPERM: f"writing into {above} is not permitted: name another place",
        errno.EROFS: f"the file system of {above} is read-only: name another place",
        errno.ENOTDIR: "a part of the path is a file: name another place",
        errno.EISDIR: "it is a directory: name a file in it",
        errno.EEXIST: "it is there and is no folder: name another one",
        errno.ENAMETOOLONG: "the name is too long: give a shorter one",
        errno.ELOOP: "its links lead in a circle: name another place",
        errno.ENOSPC: "the disk is full: make room, or name another place",
    }
    return remedy.get(number or 0, str(getattr(error, "strerror", None) or error))


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
