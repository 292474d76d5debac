"""Talks to a resources server of NeMo Gym: a cookie names a session, and each tool has a route.

The protocol is that of `nemo-gym` 0.7: `/seed_session` takes a row, each tool has a route of its
name, and `/verify` takes the row with all the agent's turns. This module does not import that
package.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

from genenv_core.domains.kit.served.client import (
    SHOWN,
    RefusedByServer,
    RemoteServer,
    ServerAnswer,
    as_list,
    as_object,
    loop,
    read_json,
    read_reward,
    wait,
)
from genenv_core.domains.kit.served.ending import ends_with_process
from genenv_core.domains.nemo_gym.rows import PARAMS
from genenv_core.domains.nemo_gym.turns import TurnLog
from genenv_core.domains.nemo_gym.watching import OpenLine, open_line
from genenv_core.domains.steps import EnvironmentLost, storable
from genenv_core.errors import one_line
from genenv_core.types import JsonObject

FAILED = "EXECUTION_ERROR"
"""The code of an error for a server that refuses a row, or fails."""

LOST = (404, 408, 410, 429, 502, 503, 504)
"""HTTP statuses of a server that no longer has the session, or has no time now."""

OWN_ROUTES = ("/seed_session", "/verify")
"""Routes where an error status is the server's refusal; on a tool's route the agent may read it."""

PASSING = ("session_", "transport_", "provider_unavailable", "shutdown", "cancelled")
"""Beginnings of the kinds of failure that a new session may not meet."""

NO_REWARDS = frozenset({"reward", "response", PARAMS, "mask_sample", "reward_components"})
"""Fields of a verdict that are not further rewards."""


@dataclass(frozen=True, slots=True)
class GymReply:
    """The reply of a route."""

    where: str
    status: int
    text: str
    is_json: bool

    def read(self) -> object:
        """Return the value of the JSON text; raises EnvironmentLost for any other text."""
        return read_json(self.text, self.where)

    @property
    def shown(self) -> str:
        """The text in the form that an error shows."""
        return one_line(self.text, SHOWN)


class GymServer(RemoteServer):
    """A resources server; `closes` says whether it has a route that ends a session."""

    closes = False

    def connect(self) -> GymSession:
        """Return a session, which begins on the server with its first reset."""
        return GymSession(self)


class GymSession:
    """A state of its own on the server, which a cookie names; each reset begins a new one."""

    def __init__(self, server: GymServer) -> None:
        self._server = server
        self._url, self._row, self._log = "", JsonObject(), TurnLog()
        self._cookies: dict[str, str] = {}
        self._line: OpenLine | None = None
        self.ending: Future[None] | None = None
        """The unfinished call that ends the previous session, if any."""

    def reset(self, arguments: JsonObject) -> ServerAnswer:
        """Seed a session with the `row` of a task; the answer is its `prompt`. Raises as `step`."""
        self.close()
        if self.ending is not None:
            self.ending.result()  # a server has no more sessions than there are seats
        self._url, self._row, self._log = self._server.url, arguments["row"], TurnLog()
        self._line = wait(open_line(self._url, self._server.timeout_s))
        reply = self._asked("/seed_session", self._row)
        ends_with_process(self)
        _taken(reply).read()
        return ServerAnswer({"text": arguments["prompt"]}, None, False, {})

    def step(self, action: JsonObject) -> ServerAnswer:
        """Return the result of a call, or the verdict; `GymForm` makes the actions.

        Raises RefusedByServer where the server fails. Raises EnvironmentLost where it has lost the
        session, gives no answer in time, or gives one that cannot be read.
        """
        if "said" in action:
            self._log.hear(action["said"])
        if "answer" in action:
            said = str(action["answer"])
        elif "name" in action:
            said = self._called(action["name"], action["arguments"])
        else:
            return self._verified()
        self._log.answer(said)
        return ServerAnswer({"text": said}, None, False, {})

    def close(self) -> None:
        """End the session, without waiting for it."""
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._cookies and self._server.closes:
            where = f"{self._url}/close_session"
            self.ending = asyncio.run_coroutine_threadsafe(
                _end(self._server, where, self._cookies), loop()
            )
        self._cookies = {}

    def _called(self, name: str, arguments: JsonObject) -> str:
        """Return the text of a tool's reply, also of an error status: the agent reads both.

        NeMo Gym's own agents show a model the same text.
        """
        reply = self._asked(f"/{name}", arguments)
        if reply.is_json or reply.status >= 500:
            try:
                reply.read()
            except EnvironmentLost:
                if reply.status < 400:
                    raise
                raise RefusedByServer(FAILED, f"{reply.status}: {reply.shown}") from None
        return reply.text

    def _verified(self) -> ServerAnswer:
        tools = as_list(as_object(self._row.get(PARAMS)).get("tools"))
        asked = {**self._row, "response": self._log.response(tools)}
        reply = _taken(self._asked("/verify", asked))
        said = as_object(reply.read())
        _check_measured(said)
        reward = read_reward(said.get("reward"), reply.where)
        if reward is None:
            raise EnvironmentLost(f"{reply.where} answers without a reward: {reply.shown}")
        own = {name: one for name, one in said.items() if name not in NO_REWARDS | self._row.keys()}
        parts = as_object(said.get("reward_components"))
        return ServerAnswer({"text": "verified"}, reward, True, {**own, **parts})

    def _asked(self, path: str, body: JsonObject) -> GymReply:
        return wait(self._sent(f"{self._url}{path}", body))

    async def _sent(self, where: str, body: JsonObject) -> GymReply:
        """Return the reply of a route; raises EnvironmentLost where the session is gone."""
        own = where.removeprefix(self._url) in OWN_ROUTES
        said = await self._server.sent(
            "POST", where, body, _cookie(self._cookies), may_refuse=not own
        )
        text = storable(said.data.decode(errors="replace"))
        reply = GymReply(where, said.status, text, said.content_type == "application/json")
        if self._line is None or self._line.ended:
            raise EnvironmentLost(f"{where}: the server has begun anew, and its sessions are gone")
        if reply.status in LOST:
            raise EnvironmentLost(f"{where} answers {reply.status}: {reply.shown}")
        self._cookies.update(said.cookies)
        return reply


def _cookie(cookies: dict[str, str]) -> dict[str, str]:
    pairs = "; ".join(f"{name}={value}" for name, value in cookies.items())
    return {"Cookie": pairs} if pairs else {}


def _taken(reply: GymReply) -> GymReply:
    """Return a reply with a status below 400; raises RefusedByServer for any other."""
    if reply.status >= 400:
        raise RefusedByServer(FAILED, f"{reply.status}: {reply.shown}")
    return reply


def _check_measured(said: JsonObject) -> None:
    """Raise where a verdict says that its reward measures nothing.

    Servers without the field `mask_sample` say it in `instance_config` or `_ng_failure_class`.
    Raises EnvironmentLost for a kind of failure that may pass, else RefusedByServer.
    """
    kind = said.get("failure_kind") or said.get("_ng_failure_class")
    masked = said.get("mask_sample") or as_object(said.get("instance_config")).get("mask_sample")
    if not masked and not said.get("_ng_failure_class"):
        return
    why = one_line(storable(f"{kind or 'no kind'}: {said.get('failure_reason') or ''}"), SHOWN)
    if str(kind).startswith(PASSING):
        raise EnvironmentLost(f"the server could not measure the attempt: {why}")
    raise RefusedByServer(FAILED, f"it could not measure the attempt: {why}")


async def _end(server: GymServer, where: str, cookies: dict[str, str]) -> None:
    with suppress(EnvironmentLost):
        await server.sent("POST", where, {}, _cookie(cookies))
