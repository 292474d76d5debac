"""Serves one app on 127.0.0.1 until standard input ends: `python serving.py MODULE:APP`.

An interpreter that has the environment's package and uvicorn, and not genenv, runs this file. The
first line on standard output is the port. Only the parent holds the other end of standard input, so
the server ends when the parent does, however that ends.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from importlib import import_module
from typing import Any


def main(place: str) -> None:
    """Serve the app; its own output goes to standard error."""
    said = os.dup(1)
    os.dup2(2, 1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.path.insert(0, os.getcwd())  # in the place of this file's folder
    module, _, name = place.partition(":")
    app: Any = getattr(import_module(module), name or "app")
    uvicorn: Any = import_module("uvicorn")
    # Named TCP, asyncio sends without delay; else each answer of two parts waits 40 ms.
    listening = socket.socket(proto=socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    os.write(said, f"{listening.getsockname()[1]}\n".encode())
    os.close(said)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


def _end_with_parent() -> None:
    while os.read(0, 2**16):
        pass
    os._exit(0)


if __name__ == "__main__":
    sys.path.pop(0)
    main(sys.argv[1])
