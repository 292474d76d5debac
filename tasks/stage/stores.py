"""Opens the artifacts and leases of each root, and the further roots to read from, once each."""

from __future__ import annotations

from functools import cache

from genenv_core.config.schema import RunConfig
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.readers import Readers
from genenv_core.storage.store.leases import Leases
from genenv_core.storage.store.opening import open_once, place_of
from tasks.stage.progress import Event, emit


def artifacts_of(root: str) -> Artifacts:
    """Return the artifacts of a root."""
    return _artifacts(place_of(root))


def leases_of(root: str) -> Leases:
    """Return this process's leases in a root."""
    return _leases(place_of(root))


def readers_of(config: RunConfig) -> Readers:
    """Return the roots that a run reads from beside its own."""
    return _readers(place_of(config.root), tuple(map(place_of, config.roots.read)))


# By place: a process may change its folder, and a relative root is then another one.
@cache
def _artifacts(place: str) -> Artifacts:
    return Artifacts(open_once(place))


@cache
def _leases(place: str) -> Leases:
    return Leases(artifacts_of(place).store)


@cache
def _readers(place: str, places: tuple[str, ...]) -> Readers:
    return Readers(artifacts_of(place), places, lambda text: emit(Event("root", message=text)))
