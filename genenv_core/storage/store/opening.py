"""Opens the store that a root URI names."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from genenv_core.errors import ConfigError
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.store.places import state_folder
from genenv_core.storage.store.protocol import Store


def open_store(root: str, *, writable: bool = True) -> Store:
    """Return the store at `root`; raises ConfigError for a wrong root, else StorageError."""
    check_slashes(root)
    scheme, separator, rest = root.partition("://")
    if not separator:
        return LocalStore(Path(root), writable=writable)
    if scheme == "file":
        return LocalStore(Path(rest), writable=writable)
    if scheme == "s3":
        from genenv_core.storage.store.s3.store import S3Store  # takes half a second to load

        return S3Store(root, writable=writable)
    raise ConfigError(f"root {root!r}: no store for {scheme}://, use a directory or s3://")


def open_once(root: str) -> Store:
    """Return the writable store at `root`; opens it once a process, and raises as `open_store`."""
    return _opened(place_of(root))


def place_of(root: str) -> str:
    """Return one text for a root, whatever folder this process is in, as a key of caches."""
    check_slashes(root)
    return root if "://" in root else str(Path(root).expanduser().absolute())


def check_slashes(root: str) -> None:
    """Raise ConfigError for `s3:/bucket`, which would be a folder called `s3:`."""
    if "://" not in root and root.lower().startswith(("s3:", "s3a:", "gs:", "file:")):
        meant = f"{root.partition(':')[0].lower()}://{root.partition(':')[2].lstrip('/')}"
        raise ConfigError(f"root {root!r}: two slashes belong behind the colon, as in {meant}")


@cache
def _opened(place: str) -> Store:
    return open_store(place)


def home_of(root: str) -> Path:
    """Return this machine's own folder of a root, without opening the store."""
    scheme, separator, rest = root.partition("://")
    if separator and scheme != "file":
        parts = [part for part in rest.split("/") if part]
        return state_folder(f"{scheme}://{'/'.join(parts)}")
    return Path(rest if separator else root).expanduser().absolute()
