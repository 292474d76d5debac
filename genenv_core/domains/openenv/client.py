"""An OpenEnv server as a client sees it: its routes over HTTP, its sessions over a WebSocket.

The protocol is that of `openenv` 0.10: a connection to `/ws` is a session with an environment of
its own. Nothing of that package is imported here. All connections share one event loop in a thread.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, cast

import aiohttp

from genenv_core.domains.steps import EnvironmentLost, storable
from genenv_core.errors import ConfigError, one_line
from genenv_core.types import JsonObject

Result = TypeVar("Result")

CAPACITY = "CAPACITY_REACHED"
INVALID = "VALIDATION_ERROR"
"""What the server calls a message that does not fit its schema."""

MISSING = (404, 405, 501)
"""Statuses of a route that a server does not have."""

LARGEST = 2**24
"""Bytes of one message at most."""

PAUSE_S = 0.2
"""Pause between two looks whether a server is there."""

END_S = 5.0
"""Longest wait for connections to close at the end of the process."""

SHOWN = 200


class RefusedByServer(Exception):
    """The server answered with an error; `code` is what it calls it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """What a reset or a step came to; `reward` is None where the step has none."""

    observation: JsonObject
    reward: float | None
    done: bool
    metadata: JsonObject


class Patience:
    """How long all who ask a server together wait while it gives no answer."""

    def __init__(self, wait_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._wait_s, self._now = wait_s, now
        self._since: float | None = None

    def answered(self) -> None:
        """Take note of an answer."""
        self._since = None

    def over(self) -> bool:
        """Take note that there is no answer; return whether nobody should wait any longer."""
        now = self._now()
        self._since = now if self._since is None else self._since
        return now > self._since + self._wait_s


class OpenEnvServer:
    """A server at a URL.

    Args:
        url: returns where it answers, such as `http://127.0.0.1:8000`; asked before each try.
        timeout_s: longest wait for one answer.
        wait_s: how long a server that gives no answer is waited for.
    """

    def __init__(self, url: Callable[[], str], *, timeout_s: float, wait_s: float) -> None:
        self._url, self._timeout_s, self.patience = url, timeout_s, Patience(wait_s)

    @property
    def url(self) -> str:
        """Return where it answers."""
        return self._url().rstrip("/")

    def call(self, method: str, path: str, body: JsonObject | None = None) -> object:
        """Return what a route answers, read as JSON; None where the server does not have it.

        Raises EnvironmentLost without an answer, or for one that is no JSON.
        """
        return self.until(lambda: _wait(self._called(method, f"{self.url}{path}", body)))

    def connect(self) -> ServerSession:
        """Return a new session.

        Raises EnvironmentLost where nobody answers. That the server is full is known only at the
        first question.
        """
        return self.until(
            lambda: ServerSession(_wait(self._opened(f"{self.url}/ws")), self._timeout_s)
        )

    def until(self, ask: Callable[[], Result]) -> Result:
        """Return what `ask` returns; while the server is lost, ask again until `wait_s` is over."""
        while True:
            try:
                found = ask()
            except EnvironmentLost:
                if self.patience.over():
                    raise
            else:
                self.patience.answered()
                return found
            time.sleep(PAUSE_S)

    async def _called(self, method: str, where: str, body: JsonObject | None) -> object:
        async with (
            _answering(where, self._timeout_s),
            _http().request(method, where, json=body) as answer,
        ):
            status, data = answer.status, await answer.read()
        if status in MISSING:
            return None
        if status >= 400:
            said = one_line(data.decode(errors="replace"), SHOWN)
            raise EnvironmentLost(f"{where} answers {status}: {said}")
        return _read(data, where)

    async def _opened(self, where: str) -> aiohttp.ClientWebSocketResponse:
        async with _answering(where, self._timeout_s):
            return await _http().ws_connect(where, max_msg_size=LARGEST)


class ServerSession:
    """One session: an environment of its own on the server, reset and stepped in turn."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, timeout_s: float) -> None:
        self._socket, self._timeout_s = socket, timeout_s
        self._where = str(socket.get_extra_info("peername") or "the server")

    def reset(self, arguments: JsonObject) -> ServerAnswer:
        """Begin an episode. Raises as `step`."""
        return self._ask({"type": "reset", "data": arguments})

    def step(self, action: JsonObject) -> ServerAnswer:
        """Return what an action comes to.

        Raises RefusedByServer where the server answers with an error, and EnvironmentLost where it
        gives no answer in time, or none that can be read.
        """
        return self._ask({"type": "step", "data": action})

    def close(self) -> None:
        """End the session, without waiting for it."""
        asyncio.run_coroutine_threadsafe(self._socket.close(), _loop())

    def _ask(self, message: JsonObject) -> ServerAnswer:
        found = _wait(self._asked(message))
        data = found.get("data")
        if not isinstance(data, dict):
            raise EnvironmentLost(f"{self._where} answers without data: {str(found)[:SHOWN]}")
        said = cast(JsonObject, data)
        if found.get("type") == "error":
            message_ = one_line(storable(str(said.get("message", ""))), SHOWN)
            raise RefusedByServer(str(said.get("code", "")), message_)
        return _answer(said, self._where)

    async def _asked(self, message: JsonObject) -> JsonObject:
        async with _answering(self._where, self._timeout_s):
            await self._socket.send_str(json.dumps(message))
            received = await self._socket.receive()
        if received.type is not aiohttp.WSMsgType.TEXT:
            raise EnvironmentLost(f"{self._where} closed the connection ({received.type.name})")
        found = _read(cast(str, received.data), self._where)
        if not isinstance(found, dict):
            raise EnvironmentLost(f"{self._where} answers no JSON object: {str(found)[:SHOWN]}")
        return cast(JsonObject, found)


@asynccontextmanager
async def _answering(where: str, timeout_s: float) -> AsyncGenerator[None]:
    """Raise EnvironmentLost where what is inside gets no answer, or not in time."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise EnvironmentLost(f"{where} gave no answer in {timeout_s:g} s") from None
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
        raise ConfigError(
            f"domain.options.url: {where} is no address: give http://HOST:PORT"
        ) from error
    except (aiohttp.ClientError, OSError, RuntimeError) as error:
        raise EnvironmentLost(f"{where}: {one_line(error, SHOWN)}") from error


def as_object(value: object) -> JsonObject:
    """Return a JSON object, {} for anything else."""
    return cast(JsonObject, value) if isinstance(value, dict) else {}


def _answer(data: JsonObject, where: str) -> ServerAnswer:
    reward = data.get("reward")
    if not isinstance(data.get("observation"), dict):
        raise EnvironmentLost(f"{where} answers without an observation: {str(data)[:SHOWN]}")
    if reward is not None and not isinstance(reward, int | float):
        raise EnvironmentLost(f"{where} answers with the reward {str(reward)[:SHOWN]}")
    return ServerAnswer(
        as_object(data["observation"]),
        None if reward is None else float(reward),
        bool(data.get("done")),
        as_object(data.get("metadata")),
    )


def _read(data: str | bytes, where: str) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        shown = data if isinstance(data, str) else data.decode(errors="replace")
        raise EnvironmentLost(f"{where} answers no JSON: {one_line(shown, SHOWN)}") from error


def _wait(work: Coroutine[Any, Any, Result]) -> Result:
    return asyncio.run_coroutine_threadsafe(work, _loop()).result()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    # A daemon: a server that hangs must not keep the process from ending.
    threading.Thread(target=loop.run_forever, name="genenv-openenv", daemon=True).start()
    return loop


@cache
def _http() -> aiohttp.ClientSession:
    """Return the one client; called in the loop alone."""
    made = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), trust_env=False)
    atexit.register(lambda: asyncio.run_coroutine_threadsafe(made.close(), _loop()).result(END_S))
    return made
