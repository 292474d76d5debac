"""Serve the pages of `genenv view` until a signal comes."""

from __future__ import annotations

import errno
import secrets
import socket
import sys
from collections.abc import Callable

import uvicorn

from flows.view.app import LOCAL, application
from genenv_core.errors import ConfigError
from genenv_core.storage.store.opening import open_store
from genenv_core.storage.store.protocol import Store

GRACE_S = 3
"""Seconds that answers in progress have to end."""


def serve(store: Store, host: str, port: int, say: Callable[[str], object]) -> None:
    """Serve the pages over a store, and say where; raises ConfigError where it cannot listen."""
    listening = listen(host, port)
    token = None if host in (*LOCAL, "::1") else secrets.token_urlsafe(24)
    hosts = LOCAL if token is None else ["*"]  # the token guards what the name does not
    app = application(store, hosts=hosts, token=token)
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{listening.getsockname()[1]}/"
    say(f"{address}?token={token}" if token else address)
    settings = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    uvicorn.Server(settings).run(sockets=[listening])


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; raises ConfigError where it cannot."""
    if not host:
        raise ConfigError("--host is empty: name an address of this machine, such as 127.0.0.1")
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(kind)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(64)
    except OSError as error:
        made.close()
        taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
        other = "--port, or 0 for any free one" if taken else "--host"
        said = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            from flows.up.services import listener  # loads what `genenv view` does not need

            said = f"the port is taken by {listener(port)}"
        raise ConfigError(f"--host {host} --port {port}: {said}: choose another {other}") from error
    return made


if __name__ == "__main__":  # as a child of `genenv up`, whose root may still be empty
    serve(open_store(sys.argv[1], writable=False), sys.argv[2], int(sys.argv[3]), lambda _: None)
