"""Asks an OpenEnv server about itself: its name, the form of an action, its tasks."""

from __future__ import annotations

from dataclasses import dataclass

from genenv_core.domains.kit.served.client import RemoteServer, as_object
from genenv_core.domains.kit.served.facts import asked_of, environments_of, splits_of
from genenv_core.errors import ConfigError
from genenv_core.types import JsonObject


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The server's part in what decides tasks and verdicts, beside the options.

    `splits` has the number of tasks of each split, for a server with tasks of its own.
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


def facts_of(server: RemoteServer, *, tasks: bool) -> ServerFacts:
    """Return a server's facts; `tasks` says whether to ask for its tasks too.

    A server of `openenv` 0.10 has one environment: neither a reset nor the socket can name another.
    Raises ConfigError where no OpenEnv server answers, or where it lists several environments.
    """
    with asked_of(server) as place:
        said = as_object(server.call("GET", "/metadata"))
        schema = as_object(server.call("GET", "/schema"))
        named = environments_of(server) if tasks else []
        splits = splits_of(server, named[0]) if len(named) == 1 else {}
    if not as_object(schema.get("action")):
        raise ConfigError(
            f"{place}: its /schema names no action, so it is no OpenEnv server, or a "
            "private one that answers so to whom it does not know (domain.options.key_env)"
        )
    if len(named) > 1:
        raise ConfigError(
            f"{place}: it lists {', '.join(named)}, and a session of OpenEnv cannot name one: "
            "serve each environment at an address of its own"
        )
    name, version, about = (str(said.get(one) or "") for one in ("name", "version", "description"))
    return ServerFacts(name, version, about, schema, splits)
