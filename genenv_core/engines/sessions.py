"""Sessions for engines of every kind: continuous ones, those elsewhere, all others."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from queue import SimpleQueue

from genenv_core.engines.protocol import Continuous, Engine, Session, Submits
from genenv_core.types import Completion, FinishReason, SampleRequest, SamplingParams

Mailbox = SimpleQueue[Callable[[], None]]
"""Calls that other threads leave for the thread that drives the episodes."""


def open_session(engine: Engine, params: SamplingParams, mailbox: Mailbox) -> Session:
    """Return the session that lets requests to this engine wait for each other the least."""
    if isinstance(engine, Continuous):
        return engine.open_session(params)
    if isinstance(engine, Submits):
        return RemoteSession(engine, params, mailbox)
    return BatchSession(engine, params)


def cut(completion: Completion, room: int) -> Completion:
    """Return the completion with at most `room` tokens."""
    if len(completion.token_ids) <= room:
        return completion
    return replace(
        completion,
        token_ids=completion.token_ids[:room],
        logprobs=completion.logprobs[:room],
        finish_reason=FinishReason.LENGTH,
    )


class BatchSession:
    """Samples one batch after another: the requests that wait become the next batch."""

    def __init__(self, engine: Engine, params: SamplingParams) -> None:
        self._engine, self._params = engine, params
        self._waiting: list[tuple[int, SampleRequest, int]] = []

    @property
    def computes(self) -> bool:
        """Return whether a batch can be sampled."""
        return bool(self._waiting)

    def submit(self, tag: int, request: SampleRequest, max_tokens: int) -> None:
        """Put a request into the next batch."""
        self._waiting.append((tag, request, max_tokens))

    def advance(self) -> list[tuple[int, Completion]]:
        """Sample all that waits."""
        batch, self._waiting = self._waiting, []
        if not batch:
            return []
        shared = replace(self._params, max_tokens=max(bound for _, _, bound in batch))
        completions = self._engine.sample([request for _, request, _ in batch], shared)
        return [
            (tag, cut(done, bound))
            for (tag, _, bound), done in zip(batch, completions, strict=True)
        ]

    def forget(self, tag: int) -> None:
        """Do nothing: this session keeps nothing."""

    def close(self) -> None:
        """Drop what waits."""
        self._waiting.clear()


class RemoteSession:
    """Requests to an engine elsewhere.

    Args:
        engine: sends a request and returns its completion to come.
        params: shared by all requests but for `max_tokens`.
        mailbox: gets a call for each completion that has ended.
    """

    def __init__(self, engine: Submits, params: SamplingParams, mailbox: Mailbox) -> None:
        self._engine, self._params, self._mailbox = engine, params, mailbox
        self._under_way: dict[int, Future[Completion]] = {}
        self._ended: list[tuple[int, Future[Completion]]] = []

    @property
    def computes(self) -> bool:
        """Return False: the mailbox says when something has ended."""
        return False

    def submit(self, tag: int, request: SampleRequest, max_tokens: int) -> None:
        """Send a request."""
        future = self._engine.submit(request, replace(self._params, max_tokens=max_tokens))
        self._under_way[tag] = future
        # Called in another thread, or at once.
        future.add_done_callback(lambda done: self._mailbox.put(partial(self._end, tag, done)))

    def advance(self) -> list[tuple[int, Completion]]:
        """Return what the mailbox has brought; raises what a request has raised."""
        ended = [(tag, future.result()) for tag, future in self._ended]
        self._ended.clear()
        return ended

    def forget(self, tag: int) -> None:
        """Do nothing: the engine itself keeps prefixes."""

    def close(self) -> None:
        """Send nothing more; wait for no answer."""
        for future in self._under_way.values():
            future.cancel()

    def _end(self, tag: int, future: Future[Completion]) -> None:
        del self._under_way[tag]
        self._ended.append((tag, future))
