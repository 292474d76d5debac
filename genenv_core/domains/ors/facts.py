"""What a server of ORS says of an environment: its name, its tools, its tasks."""

from __future__ import annotations

from dataclasses import dataclass

from genenv_core.domains.kit.served.client import RemoteServer, as_object
from genenv_core.domains.kit.served.facts import asked_of, environments_of, splits_of
from genenv_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class OrsFacts:
    """What decides, with the options, which tasks there are.

    `tools` are as the server lists them; `splits` maps splits to how many tasks each has.
    """

    environment: str
    tools: object
    splits: dict[str, int]


def facts_of(server: RemoteServer, environment: str | None) -> OrsFacts:
    """Return what a server says of one of its environments, or of its first one.

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
