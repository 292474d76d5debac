"""What a process has open of each root: its artifacts, and its leases."""

from __future__ import annotations

from functools import cache

from genenv_core.storage.artifacts import Artifacts
from genenv_core.storage.leases import Leases
from genenv_core.storage.registry import open_store

_opened: dict[str, Artifacts] = {}


def artifacts_of(root: str) -> Artifacts:
    """Return the artifacts of a root, opened once a process."""
    if root not in _opened:
        _opened[root] = Artifacts(open_store(root))
    return _opened[root]


@cache
def leases_of(root: str) -> Leases:
    """Return this process's leases in a root."""
    return Leases(artifacts_of(root).store)
