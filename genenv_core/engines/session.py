"""Sessions for engines of every kind: continuous ones, those called from threads, all others."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from queue import SimpleQueue

from genenv_core.engines.base import Asynchronous, Continuous, Engine, Session
from genenv_core.types import Completion, FinishReason, SampleRequest, SamplingParams

Mailbox = SimpleQueue[Callable[[], None]]
"""What other threads have to say to the one that drives the episodes, as calls for it to make."""

REMOTE_REQUESTS = 256
"""Requests under way at an engine that is called from threads; it may have a bound of its own."""


def open_session(engine: Engine, params: SamplingParams, mailbox: Mailbox) -> Session:
    """Return the session that lets requests to this engine wait for each other the least."""
    if isinstance(engine, Continuous):
        return engine.open_session(params)
    if isinstance(engine, Asynchronous):
        return SubmittedSession(engine, params, mailbox)
    if engine.thread_safe:
        return ThreadedSession(engine, params, mailbox)
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
    """An engine that samples one batch after another: what waits becomes the next batch."""

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
        """Do nothing: nothing is kept."""

    def close(self) -> None:
        """Drop what waits."""
        self._waiting.clear()


class SubmittedSession:
    """An engine elsewhere that answers later: no thread waits; what is dropped is taken back."""

    def __init__(self, engine: Asynchronous, params: SamplingParams, mailbox: Mailbox) -> None:
        self._engine, self._params, self._mailbox = engine, params, mailbox
        self._under_way: set[Future[Completion]] = set()
        self._ended: list[tuple[int, Completion]] = []
        self._error: BaseException | None = None

    @property
    def computes(self) -> bool:
        """Return False: the mailbox says when something has ended."""
        return False

    def submit(self, tag: int, request: SampleRequest, max_tokens: int) -> None:
        """Send a request."""
        future = self._engine.submit(request, replace(self._params, max_tokens=max_tokens))
        self._under_way.add(future)
        # Called in a thread of the engine's, or here when it has ended already.
        future.add_done_callback(lambda done: self._mailbox.put(partial(self._end, tag, done)))

    def advance(self) -> list[tuple[int, Completion]]:
        """Return what the mailbox has brought."""
        if self._error is not None:
            raise self._error
        ended, self._ended = self._ended, []
        return ended

    def forget(self, tag: int) -> None:
        """Do nothing: prefixes are kept by the engine itself."""

    def close(self) -> None:
        """Take back what is under way."""
        for future in self._under_way:
            future.cancel()

    def _end(self, tag: int, future: Future[Completion]) -> None:
        self._under_way.discard(future)
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._ended.append((tag, future.result()))
        else:
            self._error = self._error or error


class ThreadedSession:
    """An engine elsewhere: each request is a call of `sample` from a thread of its own."""

    def __init__(self, engine: Engine, params: SamplingParams, mailbox: Mailbox) -> None:
        self._engine, self._params, self._mailbox = engine, params, mailbox
        self._threads = ThreadPoolExecutor(REMOTE_REQUESTS, thread_name_prefix="genenv-sample")
        self._ended: list[tuple[int, Completion]] = []
        self._error: BaseException | None = None

    @property
    def computes(self) -> bool:
        """Return False: the mailbox says when something has ended."""
        return False

    def submit(self, tag: int, request: SampleRequest, max_tokens: int) -> None:
        """Send a request."""
        params = replace(self._params, max_tokens=max_tokens)

        def ask() -> None:
            try:
                (completion,) = self._engine.sample([request], params)
            except BaseException as error:  # raised again where the episodes are driven
                self._mailbox.put(partial(self._fail, error))
            else:
                self._mailbox.put(partial(self._ended.append, (tag, completion)))

        self._threads.submit(ask)

    def advance(self) -> list[tuple[int, Completion]]:
        """Return what the mailbox has brought."""
        if self._error is not None:
            raise self._error
        ended = self._ended.copy()
        self._ended.clear()  # in place: the mailbox holds calls that append to it
        return ended

    def forget(self, tag: int) -> None:
        """Do nothing: prefixes are kept by the engine itself."""

    def close(self) -> None:
        """Send nothing more; wait for no answer."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
