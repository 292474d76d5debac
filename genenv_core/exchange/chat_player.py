"""A model behind an OpenAI-compatible endpoint that attempts tasks, tools and all.

The endpoint applies the chat template and reads calls out of its model's text. It returns no token
ids, so genenv can judge and show such attempts, and not train on them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

import aiohttp

from genenv_core.domains.protocol import Domain, Episode
from genenv_core.domains.steps import (
    EPISODE_TURN,
    FAILURES,
    as_observed,
    broken,
    failure,
    stepped,
    storable,
)
from genenv_core.domains.tool_calls import SaidCall, calls_said, canonical
from genenv_core.engines.retries import NEVER, Retries
from genenv_core.errors import EngineError
from genenv_core.exchange.chat_answers import Reply
from genenv_core.exchange.chat_client import (
    POLL_S,
    ChatClient,
    Endpoint,
    EndpointLost,
    EndpointRefused,
    EndpointUnreadable,
    TooLong,
    all_done,
)
from genenv_core.exchange.threads import in_thread
from genenv_core.play.attempt import AttemptBounds, SeedOf, opening
from genenv_core.play.calls import with_calls, with_calls_of
from genenv_core.play.transcript import openai_messages
from genenv_core.types import (
    Cause,
    FinishReason,
    JsonObject,
    Message,
    Rollout,
    SamplingParams,
    TaskDraft,
)

Finished = tuple[int, list[Rollout]]


@dataclass(slots=True)
class _EndpointAttempt:
    """One attempt; `usage` is (tokens of its first prompt, tokens written).

    A prompt with which the conversation begins anew counts as the first. The messages of the
    conversation under way begin at `start`; `begins` says that it has no turn of the model yet.
    """

    task_id: str
    sample_index: int
    messages: list[Message]
    tools: list[JsonObject]
    turns: int = 0
    errors: int = 0
    start: int = 0
    begins: bool = True
    usage: list[int] = field(default_factory=lambda: [0, 0])

    def rollout(self, finish: FinishReason, error: str = "", cause: Cause | None = None) -> Rollout:
        return Rollout(
            task_id=self.task_id,
            sample_index=self.sample_index,
            prompt_ids=(),
            token_ids=(),
            logprobs=(),
            loss_mask=(),
            messages=tuple(self.messages),
            turns=self.turns,
            finish_reason=finish,
            error=error,
            cause=cause,
            usage=(self.usage[0], self.usage[1]),
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    """One call of `groups`; what is finished goes to `out`, and `stopped` ends it."""

    tasks: Sequence[tuple[str, TaskDraft]]
    n: int
    params: SamplingParams
    seed_of: SeedOf
    out: SimpleQueue[Finished | BaseException | None]
    stopped: threading.Event

    def check(self) -> None:
        if self.stopped.is_set():
            raise EngineError("stopped")  # nobody listens any more


class ChatPlayer:
    """A `Player` behind an endpoint; raises ConfigError where its key is missing.

    Args:
        endpoint: the model.
        domain: opens the episodes and answers the model, in threads beside the requests.
        bounds: of each attempt; `n` of `groups` counts instead of its own.
        seconds: longest time of one attempt, None for any; the player does not wait for a step
            that is at work by then.
        retries: of attempts whose environment failed; the client has its own for requests.
        answered: whether the endpoint has answered such requests before.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        domain: Domain,
        bounds: AttemptBounds,
        *,
        seconds: float | None = None,
        retries: Retries = NEVER,
        answered: bool = False,
    ) -> None:
        """Ask nothing yet."""
        self._retries = retries
        self._client = ChatClient(endpoint, answered=answered)
        self._domain, self._bounds, self._seconds = domain, bounds, seconds

    def groups(
        self,
        batches: Sequence[Sequence[tuple[str, TaskDraft]]],
        *,
        n: int,
        params: SamplingParams,
        seed_of: SeedOf,
    ) -> Iterator[Finished]:
        """Yield (index of a task among those of all batches, its n rollouts), as finished.

        A request that the endpoint refuses for good ends its attempt with that error. Where
        requests had no answer after all tries, it leaves their tasks out, and raises EngineError
        after the others.
        """
        tasks = [task for batch in batches for task in batch]
        out: SimpleQueue[Finished | BaseException | None] = SimpleQueue()
        stopped = threading.Event()
        asked = _Asked(tasks, n, params, seed_of, out, stopped)

        def play() -> None:
            try:
                asyncio.run(self._all(asked))
                out.put(None)
            except BaseException as error:  # for the thread that waits
                out.put(error)

        # The event loop has a thread of its own, so that what is finished is handed out at once.
        threading.Thread(target=play, name="genenv-chat", daemon=True).start()
        try:
            while (found := self._next(out)) is not None:
                yield found
        finally:
            stopped.set()

    def _next(self, out: SimpleQueue[Finished | BaseException | None]) -> Finished | None:
        while True:
            self._client.endpoint.check()
            try:
                found = out.get(timeout=POLL_S)
            except Empty:
                continue
            if isinstance(found, BaseException):
                raise found
            return found

    def answer_probabilities(
        self, tasks: Sequence[tuple[str, TaskDraft]], *, params: SamplingParams, seed_of: SeedOf
    ) -> list[float] | None:
        """Return None: an endpoint does not say how probable a given text is."""
        return None

    async def _all(self, asked: _Asked) -> None:
        """Make all attempts, `concurrency` at once, and hand out each finished task."""
        endpoint, waiting = self._client.endpoint, iter(enumerate(asked.tasks))
        lost: list[EndpointLost] = []
        async with self._client.session() as session:

            async def work() -> None:
                for index, task in waiting:
                    try:
                        samples = range(asked.n)
                        played = [await self._patiently(session, asked, *task, n) for n in samples]
                        made = [with_calls_of(one, self._domain) for one in played]
                    except EndpointLost as error:
                        lost.append(error)
                    else:
                        asked.out.put((index, made))

            at_once = min(endpoint.asking.concurrency, len(asked.tasks))
            await all_done([work() for _ in range(at_once)], asked.check)
        if lost:
            raise EngineError(
                f"{endpoint.section}.url {endpoint.url}: {len(lost)} of {len(asked.tasks)} tasks "
                f"had no answer after all tries, the last: {lost[-1]}; the others are kept, and "
                "the same command asks for the rest"
            )

    async def _patiently(
        self,
        session: aiohttp.ClientSession,
        asked: _Asked,
        task_id: str,
        draft: TaskDraft,
        sample_index: int,
    ) -> Rollout:
        """Return one attempt, which is made again while its environment fails."""
        made = await self._attempt(session, asked, task_id, draft, sample_index)
        for number in range(1, self._retries.tries + 1):
            if made.cause is not Cause.ENVIRONMENT:
                break
            await asyncio.sleep(self._retries.pause(number))
            made = await self._attempt(session, asked, task_id, draft, sample_index)
        return made

    async def _attempt(
        self,
        session: aiohttp.ClientSession,
        asked: _Asked,
        task_id: str,
        draft: TaskDraft,
        sample_index: int,
    ) -> Rollout:
        """Return one finished attempt; raises EndpointLost and EngineError as the client does."""
        messages, tools = opening(self._domain, task_id, draft)
        attempt = _EndpointAttempt(task_id, sample_index, messages, list(tools))
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                return await self._played(session, asked, attempt, draft)
        except TimeoutError:
            if not limit.expired():
                raise
            why = f"took longer than {self._seconds:g} s, which is the limit"
            return attempt.rollout(FinishReason.ERROR, why, Cause.RUN)

    async def _played(
        self,
        session: aiohttp.ClientSession,
        asked: _Asked,
        attempt: _EndpointAttempt,
        draft: TaskDraft,
    ) -> Rollout:
        task_id, sample_index = attempt.task_id, attempt.sample_index
        seed = asked.seed_of(task_id, sample_index, EPISODE_TURN)
        try:
            episode = await in_thread(self._domain.episode, draft, seed)
        except FAILURES as error:
            why = broken(failure(error), task_id, 0)
            return attempt.rollout(FinishReason.ERROR, why, Cause.ENVIRONMENT)
        while True:
            try:
                reply = await self._client.ask(session, self._body(attempt, asked))
            except TooLong as error:
                return _without_room(attempt, str(error))
            except EndpointRefused as error:
                if isinstance(error, EndpointLost) and not isinstance(error, EndpointUnreadable):
                    raise
                return attempt.rollout(FinishReason.ERROR, str(error), Cause.ENGINE)
            ended = await self._take(attempt, episode, reply)
            if ended is not None:
                return ended

    def _body(self, attempt: _EndpointAttempt, asked: _Asked) -> dict[str, Any]:
        params = asked.params
        return self._client.body(
            asked.seed_of(attempt.task_id, attempt.sample_index, attempt.turns),
            messages=openai_messages(
                with_calls(attempt.messages[attempt.start :], readable, infer=False)
            ),
            tools=attempt.tools or None,
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            top_p=params.top_p if params.top_p < 1 else None,
        )

    async def _take(
        self, attempt: _EndpointAttempt, episode: Episode, reply: Reply
    ) -> Rollout | None:
        """Take a turn of the model and the environment's answer; return a finished attempt."""
        text = storable(canonical(reply.text, reply.calls))
        attempt.messages.append({"role": "assistant", "content": text})
        if attempt.begins:
            attempt.usage[0] += reply.prompt_tokens
            attempt.begins = False
        attempt.usage[1] += reply.tokens
        attempt.turns += 1
        if reply.finish is FinishReason.LENGTH:
            return attempt.rollout(FinishReason.LENGTH)
        if reply.finish is FinishReason.ERROR:
            return attempt.rollout(FinishReason.ERROR, reply.error, Cause.ENGINE)
        observation = await in_thread(stepped, episode.step, text)
        if observation.begins_anew:
            attempt.start, attempt.begins = len(attempt.messages), True
        attempt.messages.extend(as_observed(observation))
        attempt.errors = attempt.errors + 1 if observation.failed else 0
        if attempt.errors >= self._bounds.max_errors:
            why = broken(observation, attempt.task_id, attempt.turns, text)
            return attempt.rollout(FinishReason.ERROR, why, observation.cause)
        if observation.done:
            return attempt.rollout(FinishReason.STOP)
        used = 0 if attempt.begins else reply.prompt_tokens + reply.tokens
        if attempt.turns >= self._bounds.max_turns or used >= self._bounds.max_length:
            return attempt.rollout(FinishReason.LENGTH)
        return None


def _without_room(attempt: _EndpointAttempt, why: str) -> Rollout:
    """Return an attempt that the endpoint's context ended, as `rollout.max_length` would end it."""
    if attempt.turns:
        return attempt.rollout(FinishReason.LENGTH)
    return attempt.rollout(FinishReason.ERROR, why, Cause.AGENT)


def readable(text: str) -> list[SaidCall]:
    """Return the calls that go back to the model as calls; those that nobody can read stay text."""
    return [call for call in calls_said(text) if call.arguments is not None]
