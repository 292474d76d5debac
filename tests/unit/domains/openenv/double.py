"""A double of the server of docs/examples/openenv_sums.py in this process, with faults on demand.

`test_openenv_server.py` plays the same checks against this one and against the real package.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType, web

from tests.unit.domains.doubles import Double, running

ACTION = {
    "properties": {"answer": {"type": "string"}, "metadata": {"type": "object"}},
    "required": ["answer"],
    "title": "SumAction",
    "type": "object",
}
TASKS = {"train": 40, "test": 20}


@dataclass
class Sums:
    """One session."""

    total: int = 0
    tries: int = 0

    def reset(self, data: dict[str, Any]) -> dict[str, Any]:
        first, second = data.get("first"), data.get("second", 1)
        if first is None:
            index = data.get("index", 0)
            first, second = 1 + index % 9, 1 + index // 9 + 5 * (data.get("split") == "test")
        if first + second > 16:
            raise ValueError("sums above 16 are not for children")
        self.total, self.tries = first + second, 0
        return _answer(f"{first} + {second} =", None, False, {"right": str(self.total)})

    def step(self, data: dict[str, Any]) -> dict[str, Any]:
        self.tries += 1
        right = data["answer"].strip() == str(self.total)
        done = right or self.tries == 2
        said = "right" if right else "wrong" if done else "try again"
        return _answer(said, right / self.tries if done else None, done, {})


def _answer(
    said: str, reward: float | None, done: bool, metadata: dict[str, Any]
) -> dict[str, Any]:
    observation = {"said": said, "metadata": metadata}
    return {"observation": observation, "reward": reward, "done": done, "metadata": metadata}


@dataclass
class SumsServer(Double):
    """The server; the fields may be changed while it runs.

    `spoil` gets each question and the text of its answer and returns what is sent; None closes the
    connection instead.
    """

    room: int = 100
    tasks: bool = False
    environments: tuple[str, ...] = ("sums",)
    action: dict[str, Any] = field(default_factory=lambda: ACTION)
    session: Callable[[], Any] = Sums
    spoil: Callable[[dict[str, Any], str], str | None] = lambda _, text: text
    closes_with: int = 0
    """The code that each connection is closed with at once; 0: none is."""
    open: int = 0
    most: int = 0
    """Sessions at once so far."""
    _sockets: set[Any] = field(default_factory=set)

    def stop(self) -> None:
        """Close everything, as a process that dies does."""
        super().stop()
        self.open = 0

    def routes(self, app: web.Application) -> None:
        """Add the routes of the server."""
        app.router.add_get("/metadata", self._metadata)
        app.router.add_get("/schema", self._schema)
        app.router.add_get("/list_environments", self._environments)
        app.router.add_get("/sums/splits", self._splits)
        app.router.add_post("/sums/num_tasks", self._num_tasks)
        app.router.add_get("/ws", self._serve)
        app.on_shutdown.append(self._drop)

    async def _drop(self, app: web.Application) -> None:
        for socket in list(self._sockets):
            socket._req.transport.abort()

    async def _metadata(self, request: web.Request) -> web.Response:
        return web.json_response({"name": "Sums", "version": "1.0.0", "description": "Sums"})

    async def _schema(self, request: web.Request) -> web.Response:
        return web.json_response({"action": self.action, "observation": {}, "state": {}})

    async def _environments(self, request: web.Request) -> web.Response:
        return web.json_response(self.environments)

    async def _splits(self, request: web.Request) -> web.Response:
        if not self.tasks:
            return web.json_response({"detail": "not supported"}, status=501)
        return web.json_response([{"name": name, "type": name} for name in TASKS])

    async def _num_tasks(self, request: web.Request) -> web.Response:
        return web.json_response({"num_tasks": TASKS[(await request.json())["split"]]})

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        if self.closes_with:
            await socket.close(code=self.closes_with)
            return socket
        if self.open >= self.room:
            await socket.send_str(_error("CAPACITY_REACHED", "Server at capacity"))
            await socket.close()
            return socket
        self.open += 1
        self.most = max(self.most, self.open)
        self._sockets.add(socket)
        try:
            session = self.session()
            async for message in socket:
                if message.type is not WSMsgType.TEXT:
                    break
                asked = json.loads(message.data)
                text = self.spoil(asked, self._told(session, asked))
                if text is None:
                    break
                await socket.send_str(text)
        finally:
            self._sockets.discard(socket)
            self.open = max(0, self.open - 1)
        await socket.close()
        return socket

    def _told(self, session: Any, asked: dict[str, Any]) -> str:
        try:
            if asked["type"] == "step" and self.action is ACTION and "answer" not in asked["data"]:
                return _error("VALIDATION_ERROR", "Invalid message")
            data = getattr(session, asked["type"])(asked["data"])
        except Exception as error:
            return _error("EXECUTION_ERROR", str(error))
        return json.dumps({"type": "observation", "data": data})


def _error(code: str, message: str) -> str:
    return json.dumps({"type": "error", "data": {"message": message, "code": code}})


@contextmanager
def serving(**fields: Any) -> Iterator[SumsServer]:
    """Serve while the context lasts."""
    with running(SumsServer(**fields)) as server:
        yield server
