"""A resources server of NeMo Gym as a client sees it: sessions by cookie, tools by route.

The protocol is that of `nemo-gym` 0.7: `/seed_session` takes a row, each tool has a route of its
name, and `/verify` takes the row with all that the agent said. Nothing of that package is imported
here.
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
"""The code of a server that refuses a row, or fails."""

LOST = (404, 408, 410, 429, 502, 503, 504)
"""Statuses of a session that the server does not have, and of a server that has no time now."""

OWN_ROUTES = ("/seed_session", "/verify")
"""Routes whose refusal is the server's; that of a tool may be what the tool says to an agent."""

PASSING = ("session_", "transport_", "provider_unavailable", "shutdown", "cancelled")
"""What kinds of failure begin with that a new session may not meet."""

NO_REWARDS = frozenset({"reward", "response", PARAMS, "mask_sample", "reward_components"})
"""Fields of a verdict that are no rewards of other names."""


@dataclass(frozen=True, slots=True)
class GymReply:
    """What a route answers."""

    where: str
    status: int
    text: str
    is_json: bool

    def read(self) -> object:
        """Return the value of the JSON text; raises EnvironmentLost where it is none."""
        return read_json(self.text, self.where)

    @property
    def shown(self) -> str:
        """The text as an error shows it."""
        return one_line(self.text, SHOWN)


class GymServer(RemoteServer):
    """A resources server; `closes` says whether it takes the end of a session."""

    closes = False

    def connect(self) -> GymSession:
        """Return a session that the server knows of from its first reset on."""
        return GymSession(self)


class GymSession:
    """State of its own on the server, which a cookie names: a new one with each reset."""

    def __init__(self, server: GymServer) -> None:
        self._server = server
        self._url, self._row, self._log = "", JsonObject(), TurnLog()
        self._cookies: dict[str, str] = {}
        self._line: OpenLine | None = None
        self.ending: Future[None] | None = None
        """The call that ends the session before, until it is answered."""

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
        """Return what a call comes to, or the verdict, as `GymForm` has actions.

        Raises RefusedByServer where the server fails, and EnvironmentLost where it has lost the
        session, gives no answer in time, or none that can be read.
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
        """Return what a tool answers, an error of its own too: the agent reads both.

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
        """Return what a route answers; raises EnvironmentLost where the session is gone."""
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
    """Return an answer of a server that took what it was asked; raises RefusedByServer."""
    if reply.status >= 400:
        raise RefusedByServer(FAILED, f"{reply.status}: {reply.shown}")
    return reply


def _check_measured(said: JsonObject) -> None:
    """Raise where a verdict says that its reward measures nothing.

    `instance_config` and `_ng_failure_class` are how servers say it that know no `mask_sample`.
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
