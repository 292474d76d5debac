"""A server of aiohttp in a thread of this process, for doubles of servers of environments."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeVar

from aiohttp import web

from tests.waiting import BOUND_S

Served = TypeVar("Served", bound="Double")


class Double(ABC):
    """A server on 127.0.0.1; it may be stopped and started again, and be a hosted one.

    `asks` is a header and what it has to hold, else the answer is `refuses`. `busy` maps a path to
    the waits that its next answers ask for. `elsewhere` maps a path to where it redirects.
    `heard` are the requests: path and headers.
    """

    port: int = 0
    asks: tuple[str, str] | None = None
    refuses: int = 401
    _loop: Any = None
    _runner: Any = None

    @cached_property
    def busy(self) -> dict[str, list[str]]:
        return {}

    @cached_property
    def elsewhere(self) -> dict[str, str]:
        return {}

    @cached_property
    def heard(self) -> list[tuple[str, dict[str, str]]]:
        return []

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
        app = web.Application(middlewares=[self._gate])
        self.routes(app)
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    @web.middleware
    async def _gate(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        self.heard.append((request.path, dict(request.headers)))
        if request.path in self.elsewhere:
            raise web.HTTPTemporaryRedirect(self.elsewhere[request.path])
        if self.busy.get(request.path):
            after = self.busy[request.path].pop(0)
            return web.Response(status=429, headers={"Retry-After": after})
        if self.asks and request.headers.get(self.asks[0]) != self.asks[1]:
            said = f"no such key: {request.headers.get(self.asks[0])}"
            return web.json_response({"detail": said}, status=self.refuses)
        return await handler(request)


@contextmanager
def running(server: Served) -> Iterator[Served]:
    """Serve while the context lasts."""
    server.start()
    try:
        yield server
    finally:
        server.stop()
