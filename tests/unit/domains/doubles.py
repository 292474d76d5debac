"""A server of aiohttp in a thread of this process, for doubles of servers of environments."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from aiohttp import web

from tests.waiting import BOUND_S

Served = TypeVar("Served", bound="Double")


class Double(ABC):
    """A server on 127.0.0.1; it may be stopped and started again."""

    port: int = 0
    _loop: Any = None
    _runner: Any = None

    @abstractmethod
    def routes(self, app: web.Application) -> None:
        """Add the routes of the server."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Serve, on the port of before where there was one."""
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(BOUND_S)

    def stop(self) -> None:
        """Close everything, as a process that dies does."""
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(BOUND_S)
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _start(self) -> None:
        app = web.Application()
        self.routes(app)
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]


@contextmanager
def running(server: Served) -> Iterator[Served]:
    """Serve while the context lasts."""
    server.start()
    try:
        yield server
    finally:
        server.stop()
