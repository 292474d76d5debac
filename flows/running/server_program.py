"""Prefect's server with our changes, and the program that serves a run by it.

It imports only small modules of genenv: with pandas and polars a server starts a second later.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

from genenv_core.importing import collect_seldom

GRACE_S = 10.0
"""How long a server may take to end before it kills itself."""


def create_app(ephemeral: bool = False) -> Any:
    """Return Prefect's API with our changes."""
    from prefect.server.api.server import create_app

    _lock_before_reading()
    return create_app(ephemeral=ephemeral)


def _lock_before_reading() -> None:
    """Let every transaction that may write take SQLite's write lock first, and wait for it.

    Prefect takes it at the first write. If another connection has written since the first read,
    SQLite refuses that at once, whatever the busy timeout; the API answers 503, and the client
    tries again after two seconds. That happened about once an epoch.
    """
    from prefect.server.database.configurations import AioSqliteConfiguration

    begin = AioSqliteConfiguration.begin_transaction

    def immediate(self: Any, session: Any, with_for_update: bool = False) -> Any:
        return begin(self, session, with_for_update=True)

    AioSqliteConfiguration.begin_transaction = immediate


def _serve(port: int) -> None:
    import uvicorn

    server = uvicorn.Server(
        uvicorn.Config(create_app(ephemeral=True), host="127.0.0.1", port=port, log_level="warning")
    )

    def watch() -> None:
        sys.stdin.buffer.read()
        server.should_exit = True
        time.sleep(GRACE_S)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    server.run()


def main() -> None:
    """Serve on the port that the command names, until standard input ends."""
    collect_seldom()
    _serve(int(sys.argv[1]))


if __name__ == "__main__":
    main()
