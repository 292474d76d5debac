"""Asks a server about its own tasks, over the routes that OpenEnv and ORS both have."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from genenv_core.domains.kit.served.client import RemoteServer, as_list, as_object
from genenv_core.domains.kit.served.keys import AccessRefused
from genenv_core.domains.steps import EnvironmentLost
from genenv_core.errors import ConfigError


@contextmanager
def asked_of(server: RemoteServer) -> Generator[str]:
    """Yield the server's place for errors; raises ConfigError where the server gives no answer."""
    place = f"domain.options.url {server.url!r}"
    try:
        yield place
    except AccessRefused as error:
        raise ConfigError(f"domain.options.url: {error}") from error
    except EnvironmentLost as error:
        raise ConfigError(
            f"{place}: no server answers there: {error}: start it, or correct the address"
        ) from error


def environments_of(server: RemoteServer) -> list[str]:
    """Return the names of a server's environments, its default first."""
    return [str(one) for one in as_list(server.call("GET", "/list_environments"))]


def splits_of(server: RemoteServer, environment: str) -> dict[str, int]:
    """Return how many tasks each split of an environment has, without empty splits."""
    found: dict[str, int] = {}
    for listed in as_list(server.call("GET", f"/{environment}/splits")):
        split = str(as_object(listed).get("name"))
        counted = server.call("POST", f"/{environment}/num_tasks", {"split": split})
        found[split] = int(as_object(counted).get("num_tasks", 0))
    return {split: size for split, size in found.items() if size}
