"""A server that plays an environment, as a client asks it: over HTTP, until it answers.

No package of a protocol is imported here. All connections share one event loop in a thread.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar, cast

import aiohttp

from genenv_core.domains.rewards import REWARD
from genenv_core.domains.steps import EnvironmentLost
from genenv_core.errors import ConfigError, one_line
from genenv_core.types import JsonObject

Result = TypeVar("Result")

CAPACITY = "CAPACITY_REACHED"
"""The code of a server's error that says that it is full."""

INVALID = "VALIDATION_ERROR"
"""The code of a server's error about an action that it does not take."""

MISSING = (404, 405, 501)
"""Statuses of a route that a server does not have."""

PAUSE_S = 0.2
"""Pause between two looks whether a server is there."""

END_S = 5.0
"""Longest wait for connections to close at the end of the process."""

MOST = sys.float_info.max

SHOWN = 200
"""Letters of an answer that an error shows."""


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

    def rewards(self, names: Collection[str] | None) -> dict[str, float | None]:
        """Return the reward, and other numbers of the answer by name: those of `names`.

        They stand in the metadata or else in the observation; None names all of the metadata. A
        truth is 1 or 0. Values that are no finite numbers stay out: only the reward has to be one.
        """
        fields = self.metadata if names is None else {**self.observation, **self.metadata}
        wanted = sorted((fields.keys() if names is None else fields.keys() & set(names)) - {REWARD})
        others = {name: one for name in wanted if (one := _number(fields[name])) is not None}
        return {REWARD: self.reward, **others}


def _number(value: object) -> float | None:
    """Return a finite number; None for anything else, also for one that no float holds."""
    if not isinstance(value, int | float) or not abs(value) <= MOST:
        return None
    return float(value)


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


class ServerSession(Protocol):
    """One session: an environment of its own on the server, reset and stepped in turn."""

    def reset(self, arguments: JsonObject) -> ServerAnswer:
        """Begin an episode. Raises as `step`."""
        ...

    def step(self, action: JsonObject) -> ServerAnswer:
        """Return what an action comes to.

        Raises RefusedByServer where the server answers with an error, and EnvironmentLost where it
        gives no answer in time, or none that can be read.
        """
        ...

    def close(self) -> None:
        """End the session, without waiting for it."""
        ...


class RemoteServer(ABC):
    """A server at a URL.

    Args:
        url: returns where it answers, such as `http://127.0.0.1:8000`; asked before each try.
        timeout_s: longest wait for one answer.
        wait_s: how long a server that gives no answer is waited for.
    """

    def __init__(self, url: Callable[[], str], *, timeout_s: float, wait_s: float) -> None:
        self._url, self.timeout_s, self.patience = url, timeout_s, Patience(wait_s)

    @property
    def url(self) -> str:
        """Return where it answers."""
        return self._url().rstrip("/")

    @abstractmethod
    def connect(self) -> ServerSession:
        """Return a new session; raises EnvironmentLost where nobody answers."""

    def call(self, method: str, path: str, body: JsonObject | None = None) -> object:
        """Return what a route answers, read as JSON; None where the server does not have it.

        Raises EnvironmentLost without an answer, or for one that is no JSON.
        """
        return self.until(lambda: self._called(method, f"{self.url}{path}", body))

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

    async def sent(
        self, method: str, where: str, body: object, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Return the status and the bytes of an answer; raises EnvironmentLost without one."""
        async with (
            answering(where, self.timeout_s),
            http().request(method, where, json=body, headers=headers) as answer,
        ):
            return answer.status, await answer.read()

    def _called(self, method: str, where: str, body: JsonObject | None) -> object:
        status, data = wait(self.sent(method, where, body))
        if status in MISSING:
            return None
        if status >= 400:
            said = one_line(data.decode(errors="replace"), SHOWN)
            raise EnvironmentLost(f"{where} answers {status}: {said}")
        return read_json(data, where)


@asynccontextmanager
async def answering(where: str, timeout_s: float) -> AsyncGenerator[None]:
    """Raise EnvironmentLost if the calls inside get no answer, or none in time."""
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


def as_list(value: object) -> list[object]:
    """Return a JSON array, [] for anything else."""
    return cast("list[object]", value) if isinstance(value, list) else []


def read_reward(value: object, where: str) -> float | None:
    """Return a step's reward, None for none; raises EnvironmentLost where it is no number."""
    if value is not None and not isinstance(value, int | float):
        raise EnvironmentLost(f"{where} answers with the reward {str(value)[:SHOWN]}")
    return None if value is None else float(value)


def read_json(data: str | bytes, where: str) -> object:
    """Return the value of a JSON text; raises EnvironmentLost where it is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        shown = data if isinstance(data, str) else data.decode(errors="replace")
        raise EnvironmentLost(f"{where} answers no JSON: {one_line(shown, SHOWN)}") from error


def wait(work: Coroutine[Any, Any, Result]) -> Result:
    """Return what is done in the loop, which all connections share."""
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
    """Return the one client; called in the loop alone."""
    # No jar: a cookie may name a session, and this client has many of them with one server.
    made = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
    )
    atexit.register(lambda: asyncio.run_coroutine_threadsafe(made.close(), loop()).result(END_S))
    return made
