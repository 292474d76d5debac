"""Talks to an OpenEnv server: its sessions over a WebSocket.

The protocol is that of `openenv` 0.10: a connection to `/ws` is a session with an environment of
its own. This module does not import that package.
"""

from __future__ import annotations

import asyncio
import json
from typing import cast

import aiohttp

from genenv_core.domains.kit.served.client import (
    SHOWN,
    RefusedByServer,
    RemoteServer,
    ServerAnswer,
    answering,
    as_object,
    loop,
    read_json,
    read_reward,
    wait,
)
from genenv_core.domains.steps import EnvironmentLost, storable
from genenv_core.errors import one_line
from genenv_core.types import JsonObject

LARGEST = 2**24
"""Most bytes of one message."""

KEPT_OUT_CODES = (1008, 3000, 3003)
"""Codes with which a server closes a WebSocket to a client that it does not let in: policy
violation, unauthorized, forbidden (RFC 6455, section 7.4.1, and IANA's registry of close codes)."""


class OpenEnvServer(RemoteServer):
    """A server of OpenEnv."""

    def connect(self) -> SocketSession:
        """Return a new session.

        Raises EnvironmentLost where no server answers. Only the first request shows that a server
        is full.
        """
        return self.until(lambda: SocketSession(wait(self.opened(f"{self.url}/ws", LARGEST)), self))


class SocketSession:
    """One session: an environment of its own on the server, reset and stepped in turn."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, server: RemoteServer) -> None:
        self._socket, self._server, self._heard = socket, server, False
        self._where = str(socket.get_extra_info("peername") or "the server")

    def reset(self, arguments: JsonObject) -> ServerAnswer:
        """Begin an episode. Raises as `step`."""
        return self._ask({"type": "reset", "data": arguments})

    def step(self, action: JsonObject) -> ServerAnswer:
        """Return the result of an action.

        Raises RefusedByServer where the server answers with an error, and EnvironmentLost where its
        answer does not come in time or cannot be read.
        """
        return self._ask({"type": "step", "data": action})

    def close(self) -> None:
        """End the session, without waiting for it."""
        asyncio.run_coroutine_threadsafe(self._socket.close(), loop())

    def _ask(self, message: JsonObject) -> ServerAnswer:
        found = wait(self._asked(message))
        data = found.get("data")
        if not isinstance(data, dict):
            raise EnvironmentLost(f"{self._where} answers without data: {str(found)[:SHOWN]}")
        said = cast(JsonObject, data)
        if found.get("type") == "error":
            message_ = one_line(storable(str(said.get("message", ""))), SHOWN)
            raise RefusedByServer(str(said.get("code", "")), message_)
        return _answer(said, self._where)

    async def _asked(self, message: JsonObject) -> JsonObject:
        async with answering(self._where, self._server.timeout_s):
            await self._socket.send_str(json.dumps(message))
            received = await self._socket.receive()
        if not self._heard and self._socket.close_code in KEPT_OUT_CODES:
            raise self._server.key.refused(
                self._where, f"closes the WebSocket with code {self._socket.close_code}"
            )
        if received.type is not aiohttp.WSMsgType.TEXT:
            raise EnvironmentLost(f"{self._where} closed the connection ({received.type.name})")
        self._heard = True
        found = read_json(self._server.key.hide(cast(str, received.data)), self._where)
        if not isinstance(found, dict):
            raise EnvironmentLost(f"{self._where} answers no JSON object: {str(found)[:SHOWN]}")
        return cast(JsonObject, found)


def _answer(data: JsonObject, where: str) -> ServerAnswer:
    if not isinstance(data.get("observation"), dict):
        raise EnvironmentLost(f"{where} answers without an observation: {str(data)[:SHOWN]}")
    return ServerAnswer(
        as_object(data["observation"]),
        read_reward(data.get("reward"), where),
        bool(data.get("done")),
        as_object(data.get("metadata")),
    )
