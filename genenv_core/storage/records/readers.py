"""Takes finished stages over from other roots that a run reads beside its own.

A run takes a stage from the first root that has it: it copies the tables, keeps the manifest as it
is, and leaves the weights there until something needs them (`foreign`). genenv never writes to such
a root.

A warning names a root that cannot be read, once; from then on the run computes such stages itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from genenv_core.errors import (
    AlreadyExists,
    ConfigError,
    GenenvError,
    IntegrityError,
    NotFound,
    StorageError,
)
from genenv_core.storage import paths
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.foreign import (
    ForeignWeights,
    find_foreign,
    left_behind,
    note_foreign,
    read_foreign,
)
from genenv_core.storage.records.manifest import Manifest
from genenv_core.storage.records.origins import find_origin, note_origin
from genenv_core.storage.records.parts import copy_parts
from genenv_core.storage.store.opening import open_store
from genenv_core.storage.store.protocol import Store

log = logging.getLogger("genenv.storage")

FIELD = "roots.read"


class Shared(NamedTuple):
    """A finished stage in one of these roots."""

    manifest: Manifest
    reader: Artifacts


class Readers:
    """The roots that a run reads beside its own, in their order; safe for threads."""

    def __init__(
        self, own: Artifacts, uris: Sequence[str], tell: Callable[[str], None] = lambda text: None
    ) -> None:
        """Read from these roots; the first search for a stage opens them.

        `tell` prints a sentence when a root cannot be read.
        """
        self._own, self._uris, self._tell = own, tuple(uris), tell
        self._open: dict[str, Artifacts] = {}
        self._away: set[str] = set()
        self._lock = threading.Lock()

    def find(self, stage: str, key: str) -> Shared | None:
        """Return a stage in the first root that has it, None where none has; copies nothing."""
        return next(self._found(stage, key), None)

    def take_in(self, stage: str, key: str) -> Manifest | None:
        """Return a stage of the first root that has it whole, once it is in the own root."""
        for manifest, reader in self._found(stage, key):
            try:
                return take_in(self._own, reader.store, manifest, datetime.now(UTC))
            except (NotFound, IntegrityError) as error:
                log.warning(
                    "stage=%s key=%s of %s taken as a miss: %s",
                    stage, key[:12], reader.store.uri, error,
                )  # fmt: skip
            except StorageError as error:
                self._lose(reader.store.uri, error)
        return None

    def _found(self, stage: str, key: str) -> Iterator[Shared]:
        left = [uri for uri in self._uris if uri not in self._away]
        if not left:
            return
        note = read_foreign(self._own.store, stage, key)
        if note and note.fault:
            return
        for uri in left:
            try:
                reader = self._opened(uri)
                manifest = reader.find(stage, key)
            except GenenvError as error:
                self._lose(uri, error)
                continue
            if manifest is not None:
                yield Shared(manifest, reader)

    def _opened(self, uri: str) -> Artifacts:
        with self._lock:
            if uri not in self._open:
                self._open[uri] = Artifacts(open_store(uri, writable=False), shared=True)
            return self._open[uri]

    def _lose(self, uri: str, error: GenenvError) -> None:
        """Leave a root out, and say so once."""
        with self._lock:
            known = uri in self._away
            self._away |= {uri, *(u for u, one in self._open.items() if one.store.uri == uri)}
        if not known:
            text = f"{FIELD} {uri} cannot be read: {error}; the run goes on without it"
            log.warning("%s", text)
            self._tell(text)


def take_in(own: Artifacts, reader: Store, manifest: Manifest, now: datetime) -> Manifest:
    """Make a stage of another root one of the own root; returns its manifest there.

    Tables and small files of checkpoints come along, each compared with its digest; weights stay
    where they lie. The manifest is written last. Raises as `copy_parts`.
    """
    store, weights = own.store, left_behind(manifest)
    along = [part for part in manifest.parts if part not in weights]
    for _ in copy_parts(lambda _: reader, store, along):
        pass
    stage, key = manifest.stage, manifest.key
    if weights:
        root = _where(reader, manifest)
        note_foreign(store, ForeignWeights(stage=stage, key=key, parts=weights, root=root, at=now))
    if origin := find_origin(reader, stage, key):
        whose = origin.model_copy(update={"root": origin.root or reader.uri})
        note_origin(store, whose, replace=False)
    path, data = paths.manifest(stage, key), manifest.to_bytes()
    try:
        store.create(path, data)
    except AlreadyExists:
        winner = own.find(stage, key)
        if winner is not None:
            return winner
        store.replace(path, data)  # in place of a damaged one
    log.info("stage=%s key=%s taken from %s", stage, key[:12], reader.uri)
    return manifest


def _where(reader: Store, manifest: Manifest) -> str:
    """Return the root that has the weights: the reader, or one that it has the stage from."""
    note = find_foreign(reader, manifest)
    if note and None in reader.stats([part.path for part in note.parts]):
        return note.root
    return reader.uri


def check_readers(root: str, uris: Sequence[str]) -> None:
    """Raise ConfigError for a root that a run cannot read from; it says why, and a remedy."""
    own = open_store(root, writable=False).uri if uris else ""
    for uri in uris:
        where = f"{FIELD} {uri}"
        try:
            store = open_store(uri, writable=False)
            if "://" not in store.uri and not Path(store.uri).is_dir():
                raise ConfigError(
                    f"{where}: there is no such directory: correct it or leave it out"
                )
            if _same(store.uri, own):
                raise ConfigError(f"{where} is the run's own root: leave it out")
            if not (store.names("stages") or store.names(paths.runs())):
                raise ConfigError(
                    f"{where}: there is no data of genenv: correct it, or leave it out until "
                    "something is there"
                )
        except StorageError as error:
            raise ConfigError(
                f"{where} cannot be read: {error}; the run can start without it: leave it out"
            ) from error


def _same(one: str, other: str) -> bool:
    if "://" in one or "://" in other:
        return one == other
    return Path(one).resolve() == Path(other).resolve()
