"""Talks to a server of ORS: sessions over HTTP, and calls that answer with events.

The protocol is that of `ors-sdk` 0.1: a session plays one task, so each reset makes a new one. This
module does not import that package.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import suppress

from genenv_core.domains.kit.served.client import (
    INVALID,
    SHOWN,
    RefusedByServer,
    RemoteServer,
    ServerAnswer,
    as_object,
    loop,
    read_json,
    read_reward,
    wait,
)
from genenv_core.domains.kit.served.ending import ends_with_process
from genenv_core.domains.ors.events import FAILED, result_of, session_of
from genenv_core.domains.steps import EnvironmentLost, storable
from genenv_core.errors import one_line
from genenv_core.types import JsonObject

SESSION = "X-Session-ID"
"""The header that names a session."""

LOST = (404, 410, 429, 502, 503, 504)
"""HTTP statuses of a server that has dropped the session, or takes no requests now."""


class OrsServer(RemoteServer):
    """A server of ORS."""

    def connect(self) -> OrsSession:
        """Return a session, which begins on the server with its first reset."""
        return OrsSession(self)


class OrsSession:
    """An environment of its own on the server; each reset begins a new one."""

    def __init__(self, server: OrsServer) -> None:
        self._server = server
        self._url, self._id, self._environment = "", "", ""
        self.ending: Future[None] | None = None
        """The unfinished request that ends the previous session, if any."""

    def reset(self, arguments: JsonObject) -> ServerAnswer:
        """Open a task with the arguments of `/create`; its tools are metadata. Raises as `step`."""
        self.close()
        if self.ending is not None:
            self.ending.result()  # a server has no more sessions than there are seats
        self._url, self._environment = self._server.url, str(arguments["env_name"])
        self._id = session_of(*self._asked("POST", "/create_session"))
        ends_with_process(self)
        self._asked("POST", "/create", arguments)
        prompt = read_json(*self._asked("GET", f"/{self._environment}/prompt"))
        tools = read_json(*self._asked("GET", f"/{self._environment}/task_tools"))
        if not isinstance(prompt, list):
            raise EnvironmentLost(f"{self._url} gives a prompt without blocks: {prompt!r:.120}")
        return ServerAnswer({"blocks": prompt}, None, False, as_object(tools))

    def step(self, action: JsonObject) -> ServerAnswer:
        """Return the result of a call of a tool.

        Raises RefusedByServer where the server answers with an error. Raises EnvironmentLost where
        it has dropped the session, gives no answer in time, or gives one that cannot be read.
        """
        text, where = self._asked("POST", f"/{self._environment}/call", action)
        said = as_object(read_json(result_of(text, where), where))
        if said.get("ok") is False:
            raise RefusedByServer(INVALID, _shown(said.get("error", "")))
        output = as_object(said.get("output"))
        if not isinstance(output.get("blocks"), list):
            raise EnvironmentLost(f"{where} answers without blocks: {str(said)[:SHOWN]}")
        return ServerAnswer(
            output,
            read_reward(output.get("reward"), where),
            bool(output.get("finished")),
            as_object(output.get("metadata")),
        )

    def close(self) -> None:
        """End the session, without waiting for it."""
        if self._id:
            self.ending = asyncio.run_coroutine_threadsafe(
                _end(self._server, self._url, self._id), loop()
            )
            self._id = ""

    def _asked(self, method: str, path: str, body: JsonObject | None = None) -> tuple[str, str]:
        """Return the reply of a route, and its address for errors; raises as `step`."""
        where = f"{self._url}{path}"
        headers = {SESSION: self._id} if self._id else None
        reply = wait(self._server.sent(method, where, body, headers))
        text = reply.data.decode(errors="replace")
        if reply.status in LOST:
            raise EnvironmentLost(f"{where} answers {reply.status}: {_shown(text)}")
        if reply.status >= 400:
            detail = text
            with suppress(EnvironmentLost):
                detail = as_object(read_json(text, where)).get("detail", text)
            raise RefusedByServer(FAILED, _shown(detail))
        return text, where


async def _end(server: OrsServer, url: str, session: str) -> None:
    with suppress(EnvironmentLost):
        await server.sent("POST", f"{url}/delete", None, {SESSION: session})


def _shown(said: object) -> str:
    return one_line(storable(str(said)), SHOWN)
