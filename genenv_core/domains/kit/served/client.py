"""Asks a server that plays an environment: over HTTP, again and again until it answers.

This module imports no package of a protocol. All connections share one event loop in a thread.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar, cast

import aiohttp

from genenv_core.domains.kit.served.keys import AccessRefused, ServerKey
from genenv_core.domains.rewards import REWARD
from genenv_core.domains.steps import EnvironmentLost
from genenv_core.errors import ConfigError, one_line
from genenv_core.types import JsonObject

Result = TypeVar("Result")

CAPACITY = "CAPACITY_REACHED"
"""The code with which a server says that it is full."""

INVALID = "VALIDATION_ERROR"
"""The code with which a server refuses an action that it does not take."""

MISSING = (404, 405, 501)
"""HTTP statuses of a server that lacks the route."""

KEPT_OUT = (401, 403)
"""HTTP statuses of a server that refuses the key, or asks for one."""

BUSY = 429
"""HTTP status of a server that takes no more requests now; `Retry-After` says for how long."""

PAUSE_S = 0.2
"""Seconds between two tries at a server that does not answer."""

END_S = 5.0
"""Longest wait for connections to close at the end of the process."""

MOST = sys.float_info.max

SHOWN = 200
"""Most letters of a server's answer that an error shows."""

_KEY = ContextVar[ServerKey | None]("genenv_served_key", default=None)
"""The key that the requests of a task send, and which no other server may get."""


class RefusedByServer(Exception):
    """The server answered with an error; `code` is the server's name for it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """The result of a reset or a step; `reward` is None where the step has none."""

    observation: JsonObject
    reward: float | None
    done: bool
    metadata: JsonObject

    def rewards(self, names: Collection[str] | None) -> dict[str, float | None]:
        """Return the reward, and the other numbers of the answer that `names` lists, by name.

        They stand in the metadata or else in the observation; None takes all of the metadata. True
        counts as 1 and false as 0. It leaves out values that are no finite numbers: only the reward
        has to be one.
        """
        fields = self.metadata if names is None else {**self.observation, **self.metadata}
        wanted = sorted((fields.keys() if names is None else fields.keys() & set(names)) - {REWARD})
        others = {name: one for name in wanted if (one := _number(fields[name])) is not None}
        return {REWARD: self.reward, **others}


def _number(value: object) -> float | None:
    """Return a finite number as a float; None for anything else, also one too large for a float."""
    if not isinstance(value, int | float) or not abs(value) <= MOST:
        return None
    return float(value)


@dataclass(frozen=True, slots=True)
class HttpReply:
    """The reply of a route; `after_s` is the wait in seconds that it asks for, 0 without one."""

    status: int
    data: bytes
    content_type: str
    cookies: Mapping[str, str]
    after_s: float


class Patience:
    """How long all callers of a server wait together while it gives no answer."""

    def __init__(self, wait_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._wait_s, self._now = wait_s, now
        self._since: float | None = None

    def answered(self) -> None:
        """Note that the server answered, so the next wait begins anew."""
        self._since = None

    def over(self) -> bool:
        """Note that the server did not answer; return whether all callers should give up."""
        now = self._now()
        self._since = now if self._since is None else self._since
        return now > self._since + self._wait_s


class ServerSession(Protocol):
    """One session: an environment of its own on the server, reset and stepped in turn."""

    def reset(self, arguments: JsonObject) -> ServerAnswer:
        """Begin an episode. Raises as `step`."""
        ...

    def step(self, action: JsonObject) -> ServerAnswer:
        """Return the result of an action.

        Raises RefusedByServer where the server answers with an error, and EnvironmentLost where its
        answer does not come in time or cannot be read.
        """
        ...

    def close(self) -> None:
        """End the session, without waiting for it."""
        ...


class RemoteServer(ABC):
    """A server at a URL.

    Args:
        url: returns its address, such as `http://127.0.0.1:8000`; the client calls it before
            each try.
        timeout_s: longest wait for one answer, in seconds.
        wait_s: how many seconds to ask a server again that gives no answer.
        key: the server's key, which no other server gets.
    """

    def __init__(
        self, url: Callable[[], str], *, timeout_s: float, wait_s: float, key: ServerKey
    ) -> None:
        self._url, self.timeout_s, self.wait_s, self.key = url, timeout_s, wait_s, key
        self.patience = Patience(wait_s)

    @property
    def url(self) -> str:
        """Return the server's address, without a slash at its end."""
        return self._url().rstrip("/")

    @abstractmethod
    def connect(self) -> ServerSession:
        """Return a new session; raises EnvironmentLost where no server answers."""

    def call(self, method: str, path: str, body: JsonObject | None = None) -> object:
        """Return the reply of a route, read as JSON; None where the server lacks the route.

        Raises EnvironmentLost without a reply, for an error status, and for a reply that is no
        JSON.
        """
        return self.until(lambda: self._called(method, f"{self.url}{path}", body))

    def until(self, ask: Callable[[], Result]) -> Result:
        """Return what `ask` returns; while the server is lost, call it again for `wait_s`."""
        while True:
            try:
                found = ask()
            except AccessRefused:
                raise
            except EnvironmentLost:
                if self.patience.over():
                    raise
            else:
                self.patience.answered()
                return found
            time.sleep(PAUSE_S)

    async def sent(
        self,
        method: str,
        where: str,
        body: object,
        headers: Mapping[str, str] | None = None,
        *,
        may_refuse: bool = False,
    ) -> HttpReply:
        """Return the reply to one request, with the key hidden where the reply repeats it.

        Raises EnvironmentLost without a reply, and AccessRefused for one that refuses the key; with
        `may_refuse` it returns such a reply as any other.
        """

        async def ask() -> HttpReply:
            keyed = {**(headers or {}), **self.key.headers()}
            _KEY.set(self.key if self.key.variable else None)
            async with (
                answering(where, self.timeout_s),
                http().request(method, where, json=body, headers=keyed) as answer,
            ):
                text = self.key.hide((await answer.read()).decode(errors="surrogateescape"))
                cookies = {name: one.coded_value for name, one in answer.cookies.items()}
                after_s = _seconds(answer.headers)
                data = text.encode(errors="surrogateescape")
                return HttpReply(answer.status, data, answer.content_type, cookies, after_s)

        reply = await self.let_in(where, ask, lambda one: (one.status, one.after_s))
        if reply.status in KEPT_OUT and not may_refuse:
            raise self.key.refused(where, f"answers {reply.status}")
        return reply

    async def opened(self, where: str, largest: int) -> aiohttp.ClientWebSocketResponse:
        """Return a WebSocket with messages of `largest` bytes at most; raises as `sent`."""

        async def ask() -> aiohttp.ClientWebSocketResponse | tuple[int, float]:
            keyed = self.key.headers()
            _KEY.set(self.key if self.key.variable else None)
            async with answering(where, self.timeout_s):
                try:
                    return await http().ws_connect(where, max_msg_size=largest, headers=keyed)
                except aiohttp.WSServerHandshakeError as error:  # its request has the key
                    return error.status, _seconds(error.headers or {})

        found = await self.let_in(where, ask, lambda one: one if isinstance(one, tuple) else (0, 0))
        if not isinstance(found, tuple):
            return found
        if found[0] in KEPT_OUT:
            raise self.key.refused(where, f"answers {found[0]}")
        raise EnvironmentLost(f"{where} opens no WebSocket: it answers {found[0]}")

    async def let_in(
        self,
        where: str,
        ask: Callable[[], Awaitable[Result]],
        said: Callable[[Result], tuple[int, float]],
    ) -> Result:
        """Return what `ask` returns; ask a busy server again after the wait that it names.

        Args:
            where: the address.
            ask: asks once.
            said: returns the status of a reply, and the wait that it asks for in seconds.

        Raises AccessRefused where that takes longer than `wait_s`.
        """
        end = time.monotonic() + self.wait_s
        while True:
            found = await ask()
            status, after_s = said(found)
            if status != BUSY or not after_s:
                return found
            if time.monotonic() + after_s > end:
                raise AccessRefused(
                    f"{where} answers {status}, to be asked again in {after_s:g} s: wait so long, "
                    "or raise domain.options.wait_s; fewer sessions ask less "
                    "(domain.options.sessions)"
                )
            await asyncio.sleep(after_s)

    def _called(self, method: str, where: str, body: JsonObject | None) -> object:
        reply = wait(self.sent(method, where, body))
        if reply.status in MISSING:
            return None
        if reply.status >= 400:
            said = one_line(reply.data.decode(errors="replace"), SHOWN)
            raise EnvironmentLost(f"{where} answers {reply.status}: {said}")
        return read_json(reply.data, where)


async def _at_home(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Follow a redirect only without a key; raises AccessRefused for one with a key."""
    answer = await handler(request)
    key = _KEY.get()
    if key is not None and 300 <= answer.status < 400:
        to = answer.headers.get("Location", "")
        answer.close()
        raise key.kept_back(str(request.url), to)
    return answer


def _seconds(headers: Mapping[str, str]) -> float:
    """Return the seconds of a header Retry-After; 0 without the header, or for a date."""
    try:
        return max(0.0, float(headers.get("Retry-After", "")))
    except ValueError:
        return 0.0


@asynccontextmanager
async def answering(where: str, timeout_s: float) -> AsyncGenerator[None]:
    """Raise EnvironmentLost if the calls inside fail to get an answer within `timeout_s`.

    Raises ConfigError for an invalid address.
    """
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise EnvironmentLost(f"{where} gave no answer in {timeout_s:g} s") from None
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
        raise ConfigError(
            f"domain.options.url: {where} is no address: give http://HOST:PORT"
        ) from error
    except EnvironmentLost:  # which is an OSError too
        raise
    except (aiohttp.ClientError, OSError, RuntimeError) as error:
        raise EnvironmentLost(f"{where}: {one_line(error, SHOWN)}") from error


def as_object(value: object) -> JsonObject:
    """Return a value that is a JSON object, {} for anything else."""
    return cast(JsonObject, value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    """Return a value that is a JSON array, [] for anything else."""
    return cast("list[object]", value) if isinstance(value, list) else []


def read_reward(value: object, where: str) -> float | None:
    """Return a step's reward, None for null; raises EnvironmentLost for anything but a number."""
    if value is not None and not isinstance(value, int | float):
        raise EnvironmentLost(f"{where} answers with the reward {str(value)[:SHOWN]}")
    return None if value is None else float(value)


def read_json(data: str | bytes, where: str) -> object:
    """Return the value of a JSON text; raises EnvironmentLost for any other text."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        shown = data if isinstance(data, str) else data.decode(errors="replace")
        raise EnvironmentLost(f"{where} answers no JSON: {one_line(shown, SHOWN)}") from error


def wait(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in the loop that all connections share, and return its result."""
    return asyncio.run_coroutine_threadsafe(work, loop()).result()


@cache
def loop() -> asyncio.AbstractEventLoop:
    """Return the loop of all connections, which runs in a thread."""
    made = asyncio.new_event_loop()
    # A daemon: a server that hangs must not keep the process from ending.
    threading.Thread(target=made.run_forever, name="genenv-served", daemon=True).start()
    return made


@cache
def http() -> aiohttp.ClientSession:
    """Return the one HTTP client of the process; call it inside the loop only."""
    # No jar: a cookie may name a session, and this client has many of them with one server.
    made = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        middlewares=(_at_home,),
    )
    atexit.register(lambda: asyncio.run_coroutine_threadsafe(made.close(), loop()).result(END_S))
    return made
