"""Sends requests to an OpenAI-compatible chat endpoint, again where another try may help.

The key goes into the header of requests and nowhere else: no log, error or file holds it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from genenv_core.config.sections.endpoint import EndpointAsking
from genenv_core.errors import ConfigError, EngineError, one_line
from genenv_core.exchange.chat_answers import EndpointFault, Reply, read_answer
from genenv_core.machine.named_secrets import secret_in

SEEDS = 2**31
"""Endpoints differ in the seeds that they take; all take those below this."""

LONGEST_PAUSE_S = 60.0
POLL_S = 0.25
"""How often a stage that waits looks whether it was cancelled."""

BOUNDS = ("max_tokens", "max_completion_tokens")
"""Fields that bound an answer; a server without one takes what room its context has."""

GIVE_UP = 8
"""Requests in a row that fail before the stage does."""

CUT = 300
"""Characters of an endpoint's own words in an error."""

AGAIN = (408, 409, 424, 425, 429)
"""Statuses below 500 of requests that may be answered later; TGI says 424 for its own failures."""

Done = TypeVar("Done")


class EndpointRefused(Exception):
    """One request has no answer, and another try would not help."""


class TooLong(EndpointRefused):
    """The prompt leaves no room in the model's context."""


class EndpointLost(EndpointRefused):
    """No try got an answer; a later one may, after `after_s` seconds, as the endpoint asked."""

    def __init__(self, message: str, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s


class EndpointUnreadable(EndpointLost):
    """Each try got something that is neither an answer nor an error."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint and how to ask it; every wait calls `check`, which may raise, to end it.

    `section` is that of the configuration which names the endpoint, `where` the stage that asks.
    `request` holds more fields of each request.
    """

    section: str
    where: str
    url: str
    model_name: str
    request: dict[str, Any]
    asking: EndpointAsking
    check: Callable[[], None]


def key_of(section: str, where: str, asking: EndpointAsking) -> str:
    """Return the endpoint's key, '' for none; raises ConfigError where its variable is not set."""
    if asking.key_env is None:
        return ""
    key = secret_in(asking.key_env)
    if not key:
        raise ConfigError(
            f"execution.{section}.key_env names the variable {asking.key_env}, which is not set "
            f"here: set it to the key of {section}.url where {where} is computed, or remove the "
            "field for an endpoint without keys"
        )
    return key


class ChatClient:
    """One endpoint with its key; raises ConfigError where that is missing.

    `answered` says that the endpoint has answered such requests before.
    """

    def __init__(self, endpoint: Endpoint, *, answered: bool = False) -> None:
        """Ask nothing yet."""
        self.endpoint = endpoint
        self._key = key_of(endpoint.section, endpoint.where, endpoint.asking)
        self._answered = answered
        self._lost = 0

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncGenerator[aiohttp.ClientSession]:
        """Open the connections that `ask` uses."""
        asking = self.endpoint.asking
        limits = aiohttp.ClientTimeout(total=asking.request_seconds)
        connector = aiohttp.TCPConnector(limit=asking.concurrency)
        async with aiohttp.ClientSession(timeout=limits, connector=connector) as session:
            yield session

    def body(self, seed: int, **fields: Any) -> dict[str, Any]:
        """Return a request, without the fields that are None."""
        body: dict[str, Any] = {"model": self.endpoint.model_name, **fields, "seed": seed % SEEDS}
        body |= self.endpoint.request
        return {name: value for name, value in body.items() if value is not None}

    async def ask(self, session: aiohttp.ClientSession, body: dict[str, Any]) -> Reply:
        """Return the answer to a request; raises EndpointRefused or EndpointLost after all tries.

        Where the prompt and the bound of tokens together exceed the context, the room that is left
        there bounds the answer, as in genenv's own engines. Raises TooLong without any room.

        Raises EngineError when the endpoint refuses the key or the model, when too many requests
        in a row had no answer, or when the first ones were all refused: once it has answered, what
        it refuses is the request's own fault.
        """
        asking = self.endpoint.asking
        growing = wait_random_exponential(asking.backoff_seconds, max=LONGEST_PAUSE_S)

        def pause(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            wished = error.after_s if isinstance(error, EndpointLost) else 0.0
            return max(growing(state), min(wished, asking.request_seconds))

        tries = AsyncRetrying(
            retry=retry_if_exception_type(EndpointLost),
            stop=stop_after_attempt(asking.retries + 1),
            wait=pause,
            reraise=True,
        )
        try:
            try:
                reply: Reply = await tries(self._asked, session, body)
            except TooLong:
                unbounded = {name: body[name] for name in body if name not in BOUNDS}
                if unbounded == body:
                    raise
                reply = await tries(self._asked, session, unbounded)
        except EndpointRefused as error:
            if isinstance(error, EndpointLost) or not self._answered:
                self._count_lost(str(error))
            raise
        self._answered, self._lost = True, 0
        return reply

    def require_answers(self, count: int, error: str) -> None:
        """Raise EngineError when none of `count` requests had an answer; `error` is the last's."""
        if not self._answered and count and self._lost == count:
            raise self._gave_up(count, error)

    async def _asked(self, session: aiohttp.ClientSession, body: dict[str, Any]) -> Reply:
        endpoint = self.endpoint
        url = f"{endpoint.url.rstrip('/')}/chat/completions"
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            async with session.post(
                url, json=body, headers=headers, allow_redirects=False
            ) as answer:
                status, data = answer.status, await answer.read()
                after = answer.headers.get("Retry-After", "")
        except TimeoutError:
            raise EndpointLost(
                f"no answer in {endpoint.asking.request_seconds:g} s "
                f"(execution.{endpoint.section}.request_seconds)"
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            said = self._safe(one_line(error))
            raise EndpointLost(f"{type(error).__name__}: {said}") from None
        try:
            found = read_answer(status, data)
        except ValueError as error:
            said = self._safe(str(error))
            raise EndpointUnreadable(f"the answer is no chat completion ({said})") from None
        if isinstance(found, Reply):
            return found
        self._refuse(found)
        said = f"the endpoint answers {found.answers}: {self._safe(found.message)}"
        if found.too_long:
            raise TooLong(said)
        if found.status in AGAIN or found.status >= 500:
            raise EndpointLost(said, _seconds(after))
        raise EndpointRefused(said)

    def _refuse(self, fault: EndpointFault) -> None:
        """Raise EngineError for an answer that every request would get."""
        endpoint = self.endpoint
        where = f"{endpoint.section}.url {endpoint.url} answers {fault.answers}"
        if fault.status in (401, 403):  # whose text may repeat a part of the key
            variable = endpoint.asking.key_env
            hint = f"the key in {variable}" if variable else "a request without a key"
            raise EngineError(
                f"{where}: it refuses {hint}: set the variable that "
                f"execution.{endpoint.section}.key_env names to a key that may use the model"
            )
        if fault.status == 402:
            raise EngineError(
                f"{where}: {self._safe(fault.message)}; pay for the account of the key, or name "
                f"another one in execution.{endpoint.section}.key_env"
            )
        if fault.status == 404:
            raise EngineError(
                f"{where}: {self._safe(fault.message)}; it has no model {endpoint.model_name!r} "
                f"({endpoint.section}.model_name), or /chat/completions is not under that address"
            )

    def _count_lost(self, why: str) -> None:
        """Raise EngineError when too many requests in a row had no answer."""
        self._lost += 1
        if self._lost >= GIVE_UP:
            raise self._gave_up(self._lost, why)

    def _gave_up(self, count: int, why: str) -> EngineError:
        section = self.endpoint.section
        return EngineError(
            f"{section}.url {self.endpoint.url} with {section}.model_name "
            f"{self.endpoint.model_name!r}: {count} requests in a row failed, the last "
            f"one: {why}. See that it takes such requests ({section}.request changes their "
            "fields); its answers so far are kept, and the same command asks for the rest"
        )

    def _safe(self, text: str) -> str:
        """Return the endpoint's words shortened, without the key."""
        return (text.replace(self._key, "***") if self._key else text)[:CUT]


async def all_done(
    work: Sequence[Coroutine[Any, Any, Done]], check: Callable[[], None]
) -> list[Done]:
    """Return the results; what one raises, or `check` raises in the meantime, ends the others."""
    workers = [asyncio.create_task(one) for one in work]
    pending = set(workers)
    try:
        while pending:
            done, pending = await asyncio.wait(
                pending, timeout=POLL_S, return_when=asyncio.FIRST_EXCEPTION
            )
            check()
            for worker in done:
                worker.result()
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [worker.result() for worker in workers]


def _seconds(after: str) -> float:
    """Return the seconds of a header Retry-After; 0 for none, or for a date."""
    try:
        return max(0.0, float(after))
    except ValueError:
        return 0.0
