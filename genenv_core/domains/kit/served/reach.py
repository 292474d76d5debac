"""The servers that the domains of a process share, and the sessions with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Protocol, TypeVar, cast

from genenv_core.domains.kit.served.client import RemoteServer
from genenv_core.domains.kit.served.keys import ServerKey
from genenv_core.domains.kit.served.options import ServedOptions
from genenv_core.domains.kit.served.process import ServerProcess
from genenv_core.domains.kit.served.sessions import Seats

Server = TypeVar("Server", bound=RemoteServer, covariant=True)


class ServerKind(Protocol[Server]):
    """Makes a server, from the arguments of RemoteServer."""

    def __call__(
        self, url: Callable[[], str], *, timeout_s: float, wait_s: float, key: ServerKey
    ) -> Server:
        """Return the server."""
        ...


def server_of(kind: ServerKind[Server], options: ServedOptions) -> Server:
    """Return the server that the options name: at an address, or an app served here."""
    place = options.serve or options.address
    served = None if options.serve is None else options.variables
    python = (options.python_variable, options.package)
    waits = (options.timeout_s, options.wait_s)
    return cast(Server, _server(kind, place, served, python, waits, options.key))


@cache
def seats_of(server: RemoteServer, most: int, wait_s: float) -> Seats:
    """Return the sessions with a server; all domains of a process share them."""
    return Seats(server.connect, most, wait_s, server.patience)


@cache
def _server(
    kind: ServerKind[RemoteServer],
    place: str,
    served: tuple[str, ...] | None,
    python: tuple[str, str],
    waits: tuple[float, float],
    key: ServerKey,
) -> RemoteServer:
    url = (lambda: place) if served is None else _process(place, served, *python).url
    timeout_s, wait_s = waits
    return kind(url, timeout_s=timeout_s, wait_s=wait_s, key=key)


@cache
def _process(
    place: str, variables: tuple[str, ...], python_variable: str, package: str
) -> ServerProcess:
    return ServerProcess(place, variables, python_variable, package)
