"""The artifacts and leases of each root, and the roots that are read beside it, opened once."""

from __future__ import annotations

from functools import cache

from genenv_core.config.schema import RunConfig
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.readers import Readers
from genenv_core.storage.store.leases import Leases
from genenv_core.storage.store.opening import open_once
from tasks.stage.progress import Event, emit


@cache
def artifacts_of(root: str) -> Artifacts:
    """Return the artifacts of a root."""
    return Artifacts(open_once(root))


@cache
def leases_of(root: str) -> Leases:
    """Return this process's leases in a root."""
    return Leases(artifacts_of(root).store)


def readers_of(config: RunConfig) -> Readers:
    """Return the roots that a run reads from beside its own."""
    return _readers(config.root, config.roots.read)


@cache
def _readers(root: str, uris: tuple[str, ...]) -> Readers:
    return Readers(artifacts_of(root), uris, lambda text: emit(Event("root", message=text)))
