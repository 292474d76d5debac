"""Asks a resources server about itself: its name, its version, its routes."""

from __future__ import annotations

from dataclasses import dataclass

from genenv_core.domains.kit.served.client import RemoteServer, as_object
from genenv_core.domains.kit.served.facts import asked_of
from genenv_core.errors import ConfigError
from genenv_core.types import JsonObject

DOCUMENT = "/openapi.json"

NEEDED = ("/seed_session", "/verify")


@dataclass(frozen=True, slots=True)
class GymFacts:
    """The server's part in what decides tasks and verdicts, beside the rows.

    `closes` says whether the server has a route that ends a cookie's session.
    """

    name: str
    version: str
    schema: JsonObject
    closes: bool


def facts_of(server: RemoteServer) -> GymFacts:
    """Return a server's facts; raises ConfigError where no resources server answers."""
    with asked_of(server) as place:
        schema = as_object(server.call("GET", DOCUMENT))
    paths = as_object(schema.get("paths"))
    if missing := [one for one in NEEDED if "post" not in as_object(paths.get(one))]:
        raise ConfigError(
            f"{place}: its {DOCUMENT} has no route {' and no '.join(missing)}, so it is no "
            "resources server of NeMo Gym"
        )
    about = as_object(schema.get("info"))
    close = as_object(paths.get("/close_session"))
    # A server that asks for a body ends sessions of another kind, which have no cookie.
    asked = as_object(as_object(close.get("post")).get("requestBody"))
    closes = "post" in close and not asked.get("required")
    return GymFacts(str(about.get("title")), str(about.get("version")), schema, closes)
