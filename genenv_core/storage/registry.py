"""Opens the store that a root URI names."""

from __future__ import annotations

from pathlib import Path

from genenv_core.errors import ConfigError
from genenv_core.storage.local import LocalStore


def open_store(root: str, *, writable: bool = True) -> LocalStore:
    """Return the store at `root`; raises ConfigError for an unknown scheme, else StorageError."""
    scheme, separator, rest = root.partition("://")
    if not separator:
        return LocalStore(Path(root), writable=writable)
    if scheme == "file":
        return LocalStore(Path(rest), writable=writable)
    raise ConfigError(f"root {root!r}: no store for {scheme}://, use a directory")
