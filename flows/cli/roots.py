"""The root that a command looks at, and the run of it that a person names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flows.cli.options import DEFAULT_ROOT

if TYPE_CHECKING:
    from genenv_core.storage.base import Store


def existing(root: str | None, *, writable: bool = False) -> Any:
    """Return the store of a root that is there already; looking must not create one."""
    from pathlib import Path

    from genenv_core.errors import ConfigError
    from genenv_core.storage.registry import open_store

    name = root or DEFAULT_ROOT
    missing = f"there is no run under {name}: start one with `genenv run`, or --root"
    if "://" not in name and not (Path(name) / "runs").is_dir():
        raise ConfigError(missing)
    store = open_store(name, writable=writable or "://" not in name)
    if "://" in name and not store.names("runs"):
        raise ConfigError(missing)
    return store


def check_run(store: Store, run: str) -> None:
    """Raise ConfigError, naming the runs that there are, when the store has no such run."""
    from genenv_core.errors import ConfigError
    from genenv_core.storage.runs import unknown_run

    if unknown := unknown_run(store, run):
        raise ConfigError(unknown)
