"""Whether a port of 127.0.0.1 is free, and whose it is if not."""

from __future__ import annotations

import contextlib
import socket

import psutil

from genenv_core.errors import ConfigError


def require_free(port: int, what: str, option: str) -> None:
    """Raise ConfigError, naming who listens, unless `what` can listen on this port."""
    with socket.socket() as probe:
        # A port that only waits for its last connections to time out is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            return
        except PermissionError:
            raise ConfigError(f"port {port} needs root: choose another with {option}") from None
        except OSError:
            pass
    raise ConfigError(
        f"port {port}, where {what} would listen, is taken by {_listener(port)}: stop that, or "
        f"choose another port with {option}"
    )


def _listener(port: int) -> str:
    """Return pid and command of the process that listens, as far as this user may know."""
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                if connection.pid is None:
                    break
                command = " ".join(psutil.Process(connection.pid).cmdline())
                return f"pid {connection.pid} ({command[:120]})"
    return "another process (of another user, or of another container)"
