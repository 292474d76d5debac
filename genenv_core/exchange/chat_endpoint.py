"""A teacher behind an OpenAI-compatible chat endpoint.

Its answers are nobody's to repeat: an endpoint may change its model, and seeds are a wish. So each
answer is kept in a file as it comes, until the stage is committed: a stage that continues after a
crash asks for none of them again. The key goes into the header of requests and nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from genenv_core.config.sections.curriculum import GenerationConfig
from genenv_core.config.sections.teacher import TeacherAsking
from genenv_core.epoch.teaching import Answer, Asked
from genenv_core.errors import ConfigError, EngineError, one_line
from genenv_core.storage.canonical import canonical_json, digest
from genenv_core.types import FinishReason

log = logging.getLogger("genenv.stage")

SEEDS = 2**31
"""Endpoints differ in the seeds that they take; all take those below this."""

LONGEST_PAUSE_S = 60.0
POLL_S = 0.25
"""How often a stage that waits looks whether it was cancelled."""

GIVE_UP = 8
"""Requests that fail one after the other before the stage does."""

CUT = 300
AGAIN = (408, 409, 429)
REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


class _Message(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Answer(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None


class _Failed(Exception):
    """One request has no answer, and another try would not help."""


class _Again(_Failed):
    """Another try may help, after the pause of `after_s` that the endpoint asks for."""

    def __init__(self, message: str, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What is asked, and how; `check` is called in every wait and may raise, to end it.

    `kept` is the file of the answers, `request` holds more fields of each request.
    """

    url: str
    model_name: str
    request: dict[str, Any]
    settings: GenerationConfig
    asking: TeacherAsking
    kept: Path
    check: Callable[[], None]


def key_of(asking: TeacherAsking) -> str:
    """Return the endpoint's key, '' for none; raises ConfigError where its variable is not set."""
    if asking.key_env is None:
        return ""
    key = os.environ.get(asking.key_env, "").strip()
    if not key:
        raise ConfigError(
            f"execution.teacher.key_env names the variable {asking.key_env}, which is not set "
            "here: set it to the key of teacher.url where generate_tasks is computed, or remove "
            "the field for an endpoint without keys"
        )
    return key


class ChatEndpoint:
    """A `Teacher` behind an endpoint; raises ConfigError where its key is missing."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Read what was answered before; nothing is asked yet."""
        self._endpoint = endpoint
        self._key = key_of(endpoint.asking)
        self._answers = _read(endpoint.kept)
        self._answered = False
        self._lost = 0

    def write(self, asked: Sequence[Asked]) -> list[Answer]:
        """Return an answer for each request, in order.

        Raises EngineError when the endpoint refuses the key or the model, or answers nothing.
        """
        return asyncio.run(self._all(asked))

    async def _all(self, asked: Sequence[Asked]) -> list[Answer]:
        asking = self._endpoint.asking
        found: dict[int, Answer] = {}
        waiting = iter(enumerate(asked))
        limits = aiohttp.ClientTimeout(total=asking.request_seconds)
        connector = aiohttp.TCPConnector(limit=asking.concurrency)
        async with aiohttp.ClientSession(timeout=limits, connector=connector) as session:
            workers = [
                asyncio.create_task(self._work(session, waiting, found))
                for _ in range(min(asking.concurrency, len(asked)))
            ]
            pending = set(workers)
            try:
                while pending:
                    done, pending = await asyncio.wait(
                        pending, timeout=POLL_S, return_when=asyncio.FIRST_EXCEPTION
                    )
                    self._endpoint.check()
                    for worker in done:
                        worker.result()
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
        answers = [found[place] for place in range(len(asked))]
        if not self._answered and self._lost == len(answers):
            raise self._gave_up(self._lost, answers[-1].error)
        return answers

    async def _work(
        self,
        session: aiohttp.ClientSession,
        waiting: Iterator[tuple[int, Asked]],
        found: dict[int, Answer],
    ) -> None:
        """Answer one request after the other until none is waiting."""
        for place, one in waiting:
            body = self._body(one)
            name = digest([one.seed, body])
            answer = self._answers.get(name)
            if answer is None:
                try:
                    answer = await self._tried(session, body)
                except _Failed as error:
                    self._count_lost(str(error))
                    answer = Answer("", FinishReason.ERROR, error=str(error))
                else:
                    self._answered, self._lost = True, 0
                    self._keep(name, answer)
            found[place] = answer

    def _body(self, one: Asked) -> dict[str, Any]:
        settings = self._endpoint.settings
        body: dict[str, Any] = {
            "model": self._endpoint.model_name,
            "messages": [dict(message) for message in one.messages],
            "max_tokens": settings.max_tokens,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "seed": one.seed % SEEDS,
            **self._endpoint.request,
        }
        return {name: value for name, value in body.items() if value is not None}

    async def _tried(self, session: aiohttp.ClientSession, body: dict[str, Any]) -> Answer:
        """Return the answer to a request; raises _Failed after the last try."""
        asking = self._endpoint.asking
        growing = wait_random_exponential(asking.backoff_seconds, max=LONGEST_PAUSE_S)

        def pause(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            wished = error.after_s if isinstance(error, _Again) else 0.0
            return max(growing(state), min(wished, asking.request_seconds))

        tries = AsyncRetrying(
            retry=retry_if_exception_type(_Again),
            stop=stop_after_attempt(asking.retries + 1),
            wait=pause,
            reraise=True,
        )
        return await tries(self._asked, session, body)

    async def _asked(self, session: aiohttp.ClientSession, body: dict[str, Any]) -> Answer:
        url = f"{self._endpoint.url.rstrip('/')}/chat/completions"
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            async with session.post(
                url, json=body, headers=headers, allow_redirects=False
            ) as answer:
                status, data = answer.status, await answer.read()
                after = answer.headers.get("Retry-After", "")
        except TimeoutError:
            raise _Again(
                f"no answer in {self._endpoint.asking.request_seconds:g} s "
                "(execution.teacher.request_seconds)"
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            said = one_line(error, CUT)
            raise _Again(f"{type(error).__name__}: {self._safe(said)}") from None
        if status == 200:
            return self._read_answer(data)
        self._refuse(status, data)
        said = f"the endpoint answers {status}: {self._said(data)}"
        if status in AGAIN or status >= 500:
            raise _Again(said, _seconds(after))
        raise _Failed(said)

    def _refuse(self, status: int, data: bytes) -> None:
        """Raise EngineError for an answer that every request would get."""
        where = f"teacher.url {self._endpoint.url} answers {status}"
        if status in (401, 403):  # whose text may repeat a part of the key
            variable = self._endpoint.asking.key_env
            hint = f"the key in {variable}" if variable else "a request without a key"
            raise EngineError(
                f"{where}: it refuses {hint}: set the variable that execution.teacher.key_env "
                "names to a key that may use the model"
            )
        if status == 404:
            raise EngineError(
                f"{where}: {self._said(data)}; it has no model {self._endpoint.model_name!r} "
                "(teacher.model_name), or /chat/completions is not under that address"
            )

    def _read_answer(self, data: bytes) -> Answer:
        try:
            answer = _Answer.model_validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "the whole"
            raise _Failed(f"the answer is no chat completion ({place}: {first['msg']})") from None
        choice, usage = answer.choices[0], answer.usage or _Usage()
        reason = REASONS.get(choice.finish_reason or "stop", FinishReason.ERROR)
        return Answer(
            choice.message.content or "",
            reason,
            prompt_tokens=usage.prompt_tokens,
            tokens=usage.completion_tokens,
            error=f"ended with {choice.finish_reason}" if reason is FinishReason.ERROR else "",
        )

    def _count_lost(self, why: str) -> None:
        """Raise EngineError when too many requests in a row had no answer."""
        self._lost += 1
        if self._lost >= GIVE_UP:
            raise self._gave_up(self._lost, why)

    def _gave_up(self, count: int, why: str) -> EngineError:
        return EngineError(
            f"teacher.url {self._endpoint.url} with teacher.model_name "
            f"{self._endpoint.model_name!r}: {count} requests in a row failed, the last "
            f"one: {why}. See that it takes such requests (teacher.request changes their fields); "
            "its answers so far are kept, and the same command asks for the rest"
        )

    def _keep(self, name: str, answer: Answer) -> None:
        """Write an answer into the file at once."""
        self._answers[name] = answer
        with self._endpoint.kept.open("ab") as file:
            # The line break in front ends a line that a crash cut off.
            file.write(b"\n" + canonical_json({"name": name, **asdict(answer)}))

    def _said(self, data: bytes) -> str:
        """Return the message in an error's body, on one short line, without the key."""
        with contextlib.suppress(ValueError, TypeError, KeyError):
            return self._safe(one_line(json.loads(data)["error"]["message"], CUT))
        return self._safe(one_line(data.decode(errors="replace"), CUT))

    def _safe(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def _read(kept: Path) -> dict[str, Answer]:
    """Return the answers in a file; a line that a crash cut off is no answer."""
    if not kept.is_file():
        return {}
    found: dict[str, Answer] = {}
    for line in kept.read_bytes().splitlines():
        with contextlib.suppress(ValueError, KeyError):
            values: dict[str, Any] = json.loads(line)
            name = str(values.pop("name"))
            found[name] = TypeAdapter(Answer).validate_python(values)
    log.info("teacher answers_kept=%d", len(found))
    return found


def _seconds(after: str) -> float:
    """Return the seconds of a header Retry-After; 0 for none, or for a date."""
    try:
        return max(0.0, float(after))
    except ValueError:
        return 0.0
