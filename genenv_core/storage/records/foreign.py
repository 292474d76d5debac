"""Weights that lie in another root: a run took a stage from there, and has not needed them yet.

Such a stage is a hit, like one whose weights gc has collected: its tables and the digests of its
checkpoints are here. `fetch` copies the weights here from the root that the note names, when a
stage needs them. A note counts only while the weights are not here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime

from genenv_core.errors import GenenvError, IntegrityError, NotFound, Retired, StorageError
from genenv_core.storage import paths
from genenv_core.storage.records.manifest import Manifest, Part
from genenv_core.storage.records.parts import copy_parts
from genenv_core.storage.seal import SealedRecord
from genenv_core.storage.store.finding import find_record
from genenv_core.storage.store.opening import open_store
from genenv_core.storage.store.protocol import Store

log = logging.getLogger("genenv.storage")

WEIGHTS = ".safetensors"
"""Suffix of files that stay in the other root; small tokenizers and settings come along."""


class ForeignWeights(SealedRecord):
    """The note that the weights of a stage's output lie in another root.

    With a `fault` the other root cannot give them: the run computes the stage here, and looks for
    it in no other root.
    """

    stage: str
    key: str
    parts: tuple[Part, ...]
    root: str
    at: datetime
    fault: str = ""


def left_behind(manifest: Manifest) -> tuple[Part, ...]:
    """Return the parts of an output that stay in the other root until a stage needs them."""
    return tuple(p for p in manifest.parts if not p.table and p.path.endswith(WEIGHTS))


def note_foreign(store: Store, note: ForeignWeights) -> None:
    """Note where an output's weights lie, in place of an earlier note."""
    store.replace(paths.foreign(note.stage, note.key), note.to_bytes())


def read_foreign(store: Store, stage: str, key: str) -> ForeignWeights | None:
    """Return the note of a stage, also one with a fault; log a warning for damage."""
    path = paths.foreign(stage, key)
    damaged = f"foreign={path} unreadable, taken as not there"
    return find_record(store, path, ForeignWeights.from_bytes, damaged)


def find_foreign(store: Store, manifest: Manifest) -> ForeignWeights | None:
    """Return the note on where the weights of an output lie, None without a valid one."""
    if not left_behind(manifest):
        return None
    found = read_foreign(store, manifest.stage, manifest.key)
    # A run may have computed the stage here since, with other bytes.
    return found if found and not found.fault and found.parts == left_behind(manifest) else None


def fetch(store: Store, note: ForeignWeights, parts: Iterable[Part]) -> None:
    """Copy weights here from where they lie, each compared with its digest.

    Raises:
        IntegrityError: they are altered there; from now on the stage is a miss.
        Retired: they are not there any more.
        StorageError: they cannot be read, or not be written here.
    """
    which = f"stage {note.stage} key {note.key[:12]}: its weights"
    restored = (
        "say `genenv gc --restore RUN` with the name of the run that needs them, run the same "
        "command again, and they are computed here"
    )
    try:
        there = open_store(note.root, writable=False)
        wanted = [part for part in parts if part in note.parts]
        size = sum(copy_parts(lambda _: there, store, wanted))
    except NotFound as error:
        raise Retired(f"{which} are not in {note.root} any more: {restored}") from error
    except IntegrityError as error:
        note_foreign(store, note.model_copy(update={"fault": str(error)}))
        raise IntegrityError(
            f"{which} are damaged in {note.root}: {error}; run the same command again and they are "
            "computed here"
        ) from error
    except GenenvError as error:
        raise StorageError(
            f"{which} lie in {note.root} and cannot be copied here: {error}; run the same command "
            f"again when they can, or {restored}"
        ) from error
    if size:
        log.info("stage=%s key=%s bytes=%d from %s", note.stage, note.key[:12], size, note.root)


def give_up(store: Store, stage: str, key: str) -> bool:
    """Note that the other root cannot give the weights, if so; return whether that is news."""
    note = read_foreign(store, stage, key)
    if note is None or note.fault:
        return False
    if None not in store.stats([part.path for part in note.parts]):  # they are here by now
        return False
    try:
        stats = open_store(note.root, writable=False).stats([part.path for part in note.parts])
        why = "" if None not in stats else "they are not there"
    except GenenvError as error:
        why = str(error)
    if why:
        note_foreign(store, note.model_copy(update={"fault": why}))
    return bool(why)
