"""Asks a server of ORS about an environment: its name, its tools, its tasks."""

from __future__ import annotations

from dataclasses import dataclass

from genenv_core.domains.kit.served.client import RemoteServer, as_object
from genenv_core.domains.kit.served.facts import asked_of, environments_of, splits_of
from genenv_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class OrsFacts:
    """The server's part in what decides tasks and verdicts, beside the options.

    `tools` is the server's own list; `splits` has the number of tasks of each split.
    """

    environment: str
    tools: object
    splits: dict[str, int]


def facts_of(server: RemoteServer, environment: str | None) -> OrsFacts:
    """Return a server's facts on one of its environments; None: on its first one.

    Raises ConfigError where no server answers, or one without this environment, or without tasks.
    """
    with asked_of(server) as place:
        names = environments_of(server)
        if not names:
            raise ConfigError(f"{place}: it lists no environments, so it is no ORS server")
        known = {name.casefold(): name for name in names}
        name = known.get((environment or names[0]).casefold())
        if name is None:
            raise ConfigError(
                f"domain.options.environment {environment!r}: the server has {', '.join(names)}"
            )
        tools = as_object(server.call("GET", f"/{name}/tools")).get("tools")
        splits = splits_of(server, name)
    if not splits:
        raise ConfigError(f"{place}: its environment {name} has no tasks")
    return OrsFacts(name, tools, splits)
