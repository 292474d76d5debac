"""Allows one `genenv up` a root: a lock for its life, and a note of its processes for later ones.

The kernel frees the lock of a killed process. The note names the processes that it left behind, by
pid and start time, because another process may reuse the pid.
"""

from __future__ import annotations

import fcntl
import os
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from pydantic import BaseModel, ValidationError

from genenv_core.errors import GenenvError
from genenv_core.storage.files import move_over, temporary
from genenv_core.storage.store.process import has_ended, identity

FOLDER = "up"


class KnownProcess(BaseModel):
    """A process: its role, its pid, and its start, as a later process may get the same pid."""

    name: str
    pid: int
    identity: str

    @property
    def is_alive(self) -> bool:
        """Return whether it still runs here."""
        return not has_ended(self.pid, self.identity) and identity(self.pid) == self.identity


class Note(BaseModel):
    """The note of a running `genenv up` in its root."""

    up: KnownProcess
    url: str
    mlflow_url: str
    view_url: str = ""
    children: list[KnownProcess] = []


def known(name: str, pid: int) -> KnownProcess:
    """Return the note of a live process."""
    return KnownProcess(name=name, pid=pid, identity=identity(pid))


def read_note(root: Path) -> Note | None:
    """Return the note of the last `genenv up` of a root, None without one."""
    try:
        return Note.model_validate_json((root / FOLDER / "state.json").read_bytes())
    except (OSError, ValidationError):
        return None


def live_api(root: Path) -> str | None:
    """Return the address of the Prefect API of a `genenv up` on this root, if it answers."""
    note = read_note(root)
    if note is None or not note.up.is_alive:
        return None
    api = f"{note.url}/api"
    try:
        with urllib.request.urlopen(f"{api}/health", timeout=5):
            return api
    except OSError:  # it is starting, or ending
        return None


def live_view(root: Path) -> str:
    """Return the address of the view of a `genenv up` on this root, '' without one."""
    note = read_note(root)
    return note.view_url if note is not None and note.up.is_alive else ""


class OneUp:
    """The right to be the `genenv up` of a root, held until `release`."""

    def __init__(self, root: Path) -> None:
        """Take it; raises GenenvError that names its holder, or the processes left behind."""
        self._folder = root / FOLDER
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock: IO[bytes] = (self._folder / "lock").open("ab")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise GenenvError(_taken(root)) from None
        self._refuse_leftovers(root)

    def note(
        self, url: str, mlflow_url: str, children: Sequence[KnownProcess], *, view_url: str = ""
    ) -> None:
        """Write the note of these processes."""
        own = known("genenv up", os.getpid())
        note = Note(
            up=own, url=url, mlflow_url=mlflow_url, view_url=view_url, children=list(children)
        )
        made = temporary(self._folder, note.model_dump_json(indent=1).encode())
        move_over(made, self._folder / "state.json")

    def release(self) -> None:
        """Give it back, once everything has ended."""
        (self._folder / "state.json").unlink(missing_ok=True)
        self._lock.close()

    def _refuse_leftovers(self, root: Path) -> None:
        note = read_note(root)
        left = [child for child in note.children if child.is_alive] if note else []
        if left:
            self._lock.close()
            names = ", ".join(f"{child.name} pid {child.pid}" for child in left)
            pids = " ".join(str(child.pid) for child in left)
            raise GenenvError(
                f"an earlier `genenv up` of {root} was killed and left behind: {names}. Stop them "
                f"with `kill {pids}`, wait until they have ended, and run it again"
            )


def _taken(root: Path) -> str:
    note = read_note(root)
    if note is None:
        return f"another `genenv up` is starting on {root}"
    return (
        f"`genenv up` runs on {root} already, pid {note.up.pid}, at {note.url}: stop it with "
        f"Ctrl-C there or `kill {note.up.pid}`, or use it"
    )
