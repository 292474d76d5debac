"""A teacher behind an OpenAI-compatible chat endpoint.

Nobody can get its answers twice: an endpoint may change its model, and may ignore seeds. So
`ChatEndpoint` writes each answer into a file as it comes, and a stage that continues after a crash
does not ask for these again. The file goes when the stage is committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiohttp
from pydantic import TypeAdapter

from genenv_core.canonical import canonical_json, digest
from genenv_core.config.sections.curriculum import GenerationConfig
from genenv_core.epoch.writing.intake import TaskRequest, TaskText
from genenv_core.exchange.chat_answers import Reply
from genenv_core.exchange.chat_client import ChatClient, Endpoint, EndpointRefused, all_done
from genenv_core.types import FinishReason

log = logging.getLogger("genenv.stage")


class ChatEndpoint:
    """A `Teacher` behind an endpoint; raises ConfigError where its key is missing."""

    def __init__(self, endpoint: Endpoint, settings: GenerationConfig, kept: Path) -> None:
        """Read earlier answers from the file `kept`, without asking anything yet."""
        self._client, self._settings, self._kept = ChatClient(endpoint), settings, kept
        self._answers = _read(kept)

    def write(self, asked: Sequence[TaskRequest]) -> list[TaskText]:
        """Return an answer for each request, in order.

        Raises EngineError when the endpoint refuses the key or the model, or answers nothing.
        """
        return asyncio.run(self._all(asked))

    async def _all(self, asked: Sequence[TaskRequest]) -> list[TaskText]:
        endpoint = self._client.endpoint
        found: dict[int, TaskText] = {}
        waiting = iter(enumerate(asked))
        async with self._client.session() as session:
            at_once = min(endpoint.asking.concurrency, len(asked))
            await all_done(
                [self._work(session, waiting, found) for _ in range(at_once)], endpoint.check
            )
        answers = [found[place] for place in range(len(asked))]
        self._client.require_answers(len(answers), answers[-1].error if answers else "")
        return answers

    async def _work(
        self,
        session: aiohttp.ClientSession,
        waiting: Iterator[tuple[int, TaskRequest]],
        found: dict[int, TaskText],
    ) -> None:
        """Answer one request after the other until none is waiting."""
        for place, one in waiting:
            body = self._body(one)
            name = digest([one.seed, body])
            answer = self._answers.get(name)
            if answer is None:
                try:
                    answer = _answer(await self._client.ask(session, body))
                except EndpointRefused as error:
                    answer = TaskText("", FinishReason.ERROR, error=str(error))
                else:
                    self._keep(name, answer)
            found[place] = answer

    def _body(self, one: TaskRequest) -> dict[str, Any]:
        settings = self._settings
        return self._client.body(
            one.seed,
            messages=[dict(message) for message in one.messages],
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            top_p=settings.top_p,
        )

    def _keep(self, name: str, answer: TaskText) -> None:
        """Write an answer into the file at once."""
        self._answers[name] = answer
        with self._kept.open("ab") as file:
            # The line break in front ends a line that a crash cut off.
            file.write(b"\n" + canonical_json({"name": name, **asdict(answer)}))


def _answer(reply: Reply) -> TaskText:
    return TaskText(
        reply.text,
        reply.finish,
        prompt_tokens=reply.prompt_tokens,
        tokens=reply.tokens,
        error=reply.error,
    )


def _read(kept: Path) -> dict[str, TaskText]:
    """Return the answers in a file; a line that a crash cut off is no answer."""
    if not kept.is_file():
        return {}
    found: dict[str, TaskText] = {}
    for line in kept.read_bytes().splitlines():
        with contextlib.suppress(ValueError, KeyError):
            values: dict[str, Any] = json.loads(line)
            name = str(values.pop("name"))
            found[name] = TypeAdapter(TaskText).validate_python(values)
    log.info("teacher answers_kept=%d", len(found))
    return found
