"""Where a command ended a run before its last epoch, by `--until`.

The record lies beside the run's configuration until the next command takes the run on, so whoever
watches the run from anywhere knows that nobody is at work on it.
"""

from __future__ import annotations

import contextlib
import logging

from genenv_core.errors import IntegrityError, NotFound
from genenv_core.storage import paths
from genenv_core.storage.seal import SealedRecord
from genenv_core.storage.store.protocol import Store

log = logging.getLogger("genenv.storage")


class Ending(SealedRecord):
    """The last stage of a command with `--until`."""

    stage: str
    epoch: int

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.stage} of epoch {self.epoch}"


def note_ending(store: Store, run_id: str, ending: Ending) -> None:
    """Note that a run has ended after a stage, as asked."""
    store.replace(paths.run_ending(run_id), ending.to_bytes())


def clear_ending(store: Store, run_id: str) -> None:
    """Note that a command takes the run on."""
    with contextlib.suppress(NotFound):
        store.read(paths.run_ending(run_id))
        store.delete(paths.run_ending(run_id))


def read_ending(store: Store, run_id: str) -> Ending | None:
    """Return where the newest command ended as asked, None where it did not.

    Warns of a damaged record, and ignores it.
    """
    path = paths.run_ending(run_id)
    try:
        return Ending.from_bytes(store.read(path))
    except NotFound:
        return None
    except IntegrityError as error:
        log.warning("run=%s where it ended is unreadable: %s: %s", run_id, path, error)
        return None
