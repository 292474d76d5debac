"""The artifacts and leases of each root, opened once a process."""

from __future__ import annotations

from functools import cache

from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.store.leases import Leases
from genenv_core.storage.store.opening import open_store


@cache
def artifacts_of(root: str) -> Artifacts:
    """Return the artifacts of a root."""
    return Artifacts(open_store(root))


@cache
def leases_of(root: str) -> Leases:
    """Return this process's leases in a root."""
    return Leases(artifacts_of(root).store)
