"""A double of the server of docs/examples/ors_sums.py in this process, with faults on demand.

`test_ors_server.py` plays the same checks against this one and against the real package.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.unit.domains.doubles import Double, running

COUNTS = {"train": 40, "test": 20}
SCHEMA = {"properties": {"sum": {"type": "string"}}, "required": ["sum"], "type": "object"}
TOOLS = [
    {
        "name": "hint", "description": "Say whether the sum has two digits.", "input_schema": None,
    },
    {
        "name": "say", "description": "Say the sum; there are two tries.", "input_schema": SCHEMA,
    },
]  # fmt: skip


def task(split: str, index: int) -> dict[str, Any]:
    first, second = 1 + index % 9, 1 + index // 9 + 5 * (split == "test")
    return {"first": first, "second": second, "right": str(first + second)}


@dataclass
class OrsSums:
    """One session."""

    spec: dict[str, Any]
    tries: int = 0

    def prompt(self) -> list[dict[str, Any]]:
        return [_text(f"{self.spec['first']} + {self.spec['second']} =")]

    def hint(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return _output("two digits" if len(self.spec["right"]) == 2 else "one digit")

    def say(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(arguments.get("sum"), str):
            return {"ok": False, "error": "Tool input validation error"}
        self.tries += 1
        right = arguments["sum"].strip() == self.spec["right"]
        if right or self.tries == 2:
            return _output("right" if right else "wrong", right / self.tries, True)
        return _output("try again")


def _text(text: str) -> dict[str, Any]:
    return {"text": text, "detail": None, "type": "text"}


def _output(text: str, reward: float | None = None, finished: bool = False) -> dict[str, Any]:
    blocks = [_text(text)]
    output = {"blocks": blocks, "metadata": None, "reward": reward, "finished": finished}
    return {"ok": True, "output": output}


@dataclass
class OrsSumsServer(Double):
    """The server; the fields may be changed while it runs.

    `spoil` gets the name of each route of a session and the text of its answer, and returns what is
    sent; None closes the connection instead, and a number is a status without a text. `shared` and
    `own` are tools of all tasks, and of the session's task.
    """

    spoil: Callable[[str, str], str | int | None] = lambda _, text: text
    environments: list[str] = field(default_factory=lambda: ["sums"])
    counts: dict[str, int] = field(default_factory=lambda: dict(COUNTS))
    shared: list[Any] = field(default_factory=lambda: list(TOOLS))
    own: list[Any] = field(default_factory=list)
    session: Callable[[dict[str, Any]], Any] = OrsSums
    sessions: dict[str, Any] = field(default_factory=dict)
    made: int = 0
    most: int = 0
    """Sessions at once so far."""

    def stop(self) -> None:
        """Close everything, as a process that dies does."""
        super().stop()
        self.sessions.clear()

    def routes(self, app: web.Application) -> None:
        """Add the routes of the server."""
        app.router.add_get("/list_environments", self._environments)
        app.router.add_get("/sums/splits", self._splits)
        app.router.add_get("/sums/tools", self._tools)
        app.router.add_post("/sums/num_tasks", self._num_tasks)
        app.router.add_post("/sums/task", self._task)
        app.router.add_post("/create_session", self._create_session)
        app.router.add_post("/create", self._create)
        app.router.add_get("/sums/prompt", self._prompt)
        app.router.add_get("/sums/task_tools", self._task_tools)
        app.router.add_post("/sums/call", self._call)
        app.router.add_post("/delete", self._delete)

    async def _environments(self, request: web.Request) -> web.Response:
        return web.json_response(self.environments)

    async def _splits(self, request: web.Request) -> web.Response:
        return web.json_response([{"name": name, "type": name} for name in self.counts])

    async def _tools(self, request: web.Request) -> web.Response:
        return web.json_response({"tools": self.shared})

    async def _num_tasks(self, request: web.Request) -> web.Response:
        return web.json_response({"num_tasks": self.counts[(await request.json())["split"]]})

    async def _task(self, request: web.Request) -> web.Response:
        asked = await request.json()
        return web.json_response({"task": task(asked["split"], asked["index"])})

    async def _create_session(self, request: web.Request) -> web.Response:
        self.made += 1
        text = f"event: task_id\r\ndata: s{self.made}\r\n\r\nevent: end\r\ndata: \r\n\r\n"
        return self._sent(request, "create_session", text)

    async def _create(self, request: web.Request) -> web.Response:
        asked, named = await request.json(), request.headers["X-Session-ID"]
        assert asked.keys() == {"env_name", "split", "index"} and asked["env_name"] == "sums"
        self.sessions[named] = self.session(task(asked["split"], asked["index"]))
        self.most = max(self.most, len(self.sessions))
        return self._sent(request, "create", json.dumps({"sid": named}))

    async def _prompt(self, request: web.Request) -> web.Response:
        return self._sent(request, "prompt", json.dumps(self._of(request).prompt()))

    async def _task_tools(self, request: web.Request) -> web.Response:
        self._of(request)
        return self._sent(request, "task_tools", json.dumps({"tools": [*self.shared, *self.own]}))

    async def _call(self, request: web.Request) -> web.Response:
        session, asked = self._of(request), await request.json()
        result = json.dumps(getattr(session, asked["name"])(asked["input"]))
        pieces = [result[place : place + 40] for place in range(0, len(result), 40)]
        text = ": ping\r\n\r\nevent: task_id\r\ndata: t\r\n\r\n"
        for piece in pieces[:-1]:
            text += f"event: chunk\r\ndata: {piece}\r\n\r\n"
        text += f"event: end\r\ndata: {pieces[-1]}\r\n\r\n"
        return self._sent(request, "call", text)

    async def _delete(self, request: web.Request) -> web.Response:
        self.sessions.pop(request.headers["X-Session-ID"], None)
        return web.json_response({})

    def _of(self, request: web.Request) -> Any:
        found = self.sessions.get(request.headers["X-Session-ID"])
        if found is None:
            said = json.dumps({"detail": "Active environment not found"})
            raise web.HTTPNotFound(text=said, content_type="application/json")
        return found

    def _sent(self, request: web.Request, route: str, text: str) -> web.Response:
        said = self.spoil(route, text)
        if said is None:
            assert request.transport is not None
            request.transport.abort()
        if isinstance(said, int):
            return web.json_response({"detail": "KeyError: 'no such row'"}, status=said)
        return web.Response(text=said or "")


@contextmanager
def serving(**fields: Any) -> Iterator[OrsSumsServer]:
    """Serve while the context lasts."""
    with running(OrsSumsServer(**fields)) as server:
        yield server
