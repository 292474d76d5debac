"""Notes who computed a stage: the run, the time, and the cost.

A manifest cannot hold that, because equal work must leave equal bytes. The process whose manifest
won writes the note beside it, and gc removes both together. The note is history: without it, or
with a damaged one, runs reuse the stage all the same.
"""

from __future__ import annotations

import contextlib
from datetime import datetime

from genenv_core.errors import AlreadyExists
from genenv_core.storage import paths
from genenv_core.storage.seal import SealedRecord
from genenv_core.storage.store.finding import find_record
from genenv_core.storage.store.protocol import Store


class Origin(SealedRecord):
    """The attempt that computed a stage; `seconds` is None for one killed before it knew.

    `root` is the root where it did, None for this one.
    """

    stage: str
    key: str
    run_id: str
    host: str
    started_at: datetime
    seconds: float | None = None
    root: str | None = None

    def __str__(self) -> str:
        """Return the origin as a phrase."""
        cost = "" if self.seconds is None else f" in {self.seconds:.1f} s"
        where = f" of {self.root}" if self.root else ""
        when = f"{self.started_at:%Y-%m-%d %H:%M} UTC"
        return f"computed by run {self.run_id}{where} on {when}{cost}"


def note_origin(store: Store, origin: Origin, *, replace: bool = True) -> None:
    """Note who computed a stage; without `replace`, only where no note exists."""
    path = paths.origin(origin.stage, origin.key)
    if replace:
        store.replace(path, origin.to_bytes())
        return
    with contextlib.suppress(AlreadyExists):
        store.create(path, origin.to_bytes())


def find_origin(store: Store, stage: str, key: str) -> Origin | None:
    """Return who computed a stage, None without a note; log a warning for a damaged one."""
    path = paths.origin(stage, key)
    damaged = f"origin={path} unreadable, taken as not there"
    return find_record(store, path, Origin.from_bytes, damaged)
