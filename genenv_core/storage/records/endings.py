"""Notes where a command ended a run before its last epoch, by `--until`.

The record lies beside the run's configuration until the next command continues the run. It shows
everybody who watches the run that no process works on it.
"""

from __future__ import annotations

import contextlib

from genenv_core.errors import NotFound
from genenv_core.storage import paths
from genenv_core.storage.seal import SealedRecord
from genenv_core.storage.store.finding import find_record
from genenv_core.storage.store.protocol import Store


class Ending(SealedRecord):
    """The last stage of a command with `--until`."""

    stage: str
    epoch: int

    def __str__(self) -> str:
        """Return the stage and the epoch in words."""
        return f"{self.stage} of epoch {self.epoch}"


def note_ending(store: Store, run_id: str, ending: Ending) -> None:
    """Note that a run has ended after a stage, as its command asked."""
    store.replace(paths.run_ending(run_id), ending.to_bytes())


def clear_ending(store: Store, run_id: str) -> None:
    """Note that a command continues the run."""
    with contextlib.suppress(NotFound):
        store.read(paths.run_ending(run_id))
        store.delete(paths.run_ending(run_id))


def read_ending(store: Store, run_id: str) -> Ending | None:
    """Return where the newest command ended as asked, None where it did not.

    Logs a warning for a damaged record, and ignores it.
    """
    path = paths.run_ending(run_id)
    damaged = f"run={run_id} where it ended is unreadable: {path}"
    return find_record(store, path, Ending.from_bytes, damaged)
