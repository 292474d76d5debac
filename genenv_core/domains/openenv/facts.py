"""What an OpenEnv server says of itself: who it is, what an action is, which tasks it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from genenv_core.domains.openenv.client import OpenEnvServer, as_object
from genenv_core.domains.steps import EnvironmentLost
from genenv_core.errors import ConfigError
from genenv_core.types import JsonObject


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What decides, with the options, which tasks there are.

    `splits` maps the splits of a server with tasks to how many each has.
    """

    name: str
    version: str
    about: str
    schema: JsonObject
    splits: dict[str, int]

    @property
    def action(self) -> JsonObject:
        """The JSON schema of an action."""
        return self.schema["action"]


def facts_of(server: OpenEnvServer, *, tasks: bool) -> ServerFacts:
    """Return what a server says; with `tasks` also which it has.

    Raises ConfigError where no server answers, or another one than of OpenEnv.
    """
    place = f"domain.options.url {server.url!r}"
    try:
        said = as_object(server.call("GET", "/metadata"))
        schema = as_object(server.call("GET", "/schema"))
        splits = _splits(server) if tasks else {}
    except EnvironmentLost as error:
        raise ConfigError(
            f"{place}: no server answers there: {error}: start it, or correct the address"
        ) from error
    if not as_object(schema.get("action")):
        raise ConfigError(f"{place}: its /schema names no action, so it is no OpenEnv server")
    name, version, about = (str(said.get(one) or "") for one in ("name", "version", "description"))
    return ServerFacts(name, version, about, schema, splits)


def _splits(server: OpenEnvServer) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in _list(server.call("GET", "/list_environments"))[:1]:
        for listed in _list(server.call("GET", f"/{name}/splits")):
            split = str(as_object(listed).get("name"))
            counted = as_object(server.call("POST", f"/{name}/num_tasks", {"split": split}))
            found[split] = int(counted.get("num_tasks", 0))
    return {split: size for split, size in found.items() if size}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
