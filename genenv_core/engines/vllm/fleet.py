"""Requests spread over servers, tried again, and never from other weights: the loop's side.

What goes wrong, and what comes of it:

- an answer 5xx, a lost connection, a time-out: the request is tried again, elsewhere if there is an
  elsewhere; one that fails to the end while others succeed is a completion with the reason `error`;
- a server that is gone or hangs: ours is ended whole and started anew; one at a URL is left out
  until it answers again. What it was working on is done again, from the same seeds. After
  `restarts`, or when no URL answers for `lost_seconds`, the engine fails;
- other weights than those asked for, or an answer that is not what was asked: the engine fails.

A failed engine ends every request with its error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from genenv_core.config.vllm import VllmConfig, VllmServing
from genenv_core.engines.vllm.replica import Lost, Refused, Replica, until
from genenv_core.engines.vllm.server import KEY_VARIABLE, Server
from genenv_core.engines.vllm.wire import Asked, asked
from genenv_core.errors import EngineError
from genenv_core.types import Completion, FinishReason, SampleRequest, SamplingParams

log = logging.getLogger("genenv.engine")
LONGEST_PAUSE_S = 30.0
KEEP_ALIVE_S = 3.0
"""vLLM closes a silent connection after 5 s; one that is used at that moment is a lost request."""


@dataclass(frozen=True, slots=True)
class VllmSetup:
    """What the engine needs beside the checkpoint.

    `name` is what the model is called, unique to the checkpoint's content. `logprobs_mode` is
    `processed_logprobs` unless a nucleus cuts the distribution. `check` is called often and may
    raise, to end a wait.
    """

    name: str
    config: VllmConfig
    serving: VllmServing
    log: Path
    logprobs_mode: str = "processed_logprobs"
    check: Callable[[], None] = field(default=lambda: None)


@dataclass(eq=False, slots=True)
class _Job:
    """One HTTP request on its way; `since` is when it was first handed out."""

    ask: Asked
    params: SamplingParams
    future: asyncio.Future[list[Completion]]
    tries: int = 0
    since: float = 0.0


class Fleet:
    """The replicas and the requests on their way; everything here runs on one event loop."""

    def __init__(self, checkpoint: Path, setup: VllmSetup, server: Server | None) -> None:
        """Take our server, which is not started yet, or none where the setup names URLs."""
        self._checkpoint, self._setup, self._server = checkpoint, setup, server
        self._serving = setup.serving
        self._error: EngineError | None = None
        self._closed = False
        self._restarts = 0
        self._fruitless = 0
        self._answered = 0.0
        self._jobs: set[_Job] = set()
        self._replicas: list[Replica] = []
        self._background: set[asyncio.Task[None]] = set()
        self._queue: asyncio.Queue[_Job] = asyncio.Queue()
        self._changed = asyncio.Event()

    async def open(self) -> None:
        """Return when one replica is ready; raises EngineError when none will be."""
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S)
        timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        key = os.environ.get(KEY_VARIABLE, "")
        self._replicas = [
            Replica(self._session, url=url, key=key) for url in self._serving.urls
        ] or [Replica(self._session, server=self._server)]
        for replica in self._replicas:
            self._spawn(self._bring_up(replica))
            self._spawn(self._watch(replica))
        self._spawn(self._end_in(self._serving.stage_seconds))
        while not any(replica.up for replica in self._replicas):
            if self._error:
                raise self._error
            await self._news()
        self._spawn(self._dispatch())

    async def close(self) -> None:
        """Let what is under way end, for a while, and end the rest; later requests are errors."""
        self._closed = True
        if self._jobs and not self._error:
            futures = [job.future for job in self._jobs]
            await asyncio.wait(futures, timeout=self._serving.stop_seconds)
        self._fail(EngineError("engine vllm: it was closed before the request was answered"))
        tasks = [*self._background, *(task for r in self._replicas for task in r.all_tasks())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._replicas:
            await self._session.close()

    async def answer(
        self, requests: Sequence[SampleRequest], params: SamplingParams
    ) -> list[Completion]:
        """Return one completion a request, in order."""
        problems = [self._problem(request) for request in requests]
        good = [request for request, bad in zip(requests, problems, strict=True) if not bad]
        jobs = [self._enqueue(ask, params) for ask in asked(good, self._serving.concurrency)]
        try:
            parts = await asyncio.gather(*(job.future for job in jobs))
        finally:
            for job in jobs:
                job.future.cancel()
        made = iter([completion for part in parts for completion in part])
        return [_error(bad) if bad else next(made) for bad in problems]

    def _problem(self, request: SampleRequest) -> str:
        """Return why this prompt cannot be continued, or ''."""
        length, longest = len(request.prompt_ids), self._longest()
        if not request.prompt_ids:
            return "the prompt is empty: give at least one token id"
        if longest is not None and length >= longest:
            return (
                f"the prompt has {length} tokens and the server takes sequences of {longest}, "
                "which leaves no room for a completion: shorten the prompt"
            )
        if min(request.prompt_ids) < 0:
            return f"the prompt has token id {min(request.prompt_ids)}: use the model's tokenizer"
        return ""

    def _longest(self) -> int | None:
        return min((r.longest for r in self._replicas if r.longest is not None), default=None)

    def _enqueue(self, ask: Asked, params: SamplingParams) -> _Job:
        if self._error:
            raise self._error
        longest = self._longest()
        if longest is not None:
            room = longest - len(ask.prompt_ids)
            params = replace(params, max_tokens=min(params.max_tokens, room))
        job = _Job(ask, params, asyncio.get_running_loop().create_future())
        self._jobs.add(job)
        job.future.add_done_callback(lambda _: self._jobs.discard(job))
        self._queue.put_nowait(job)
        return job

    async def _dispatch(self) -> None:
        """Hand out requests in the order they came, each to the replica with the least to do."""
        while True:
            job = await self._queue.get()
            if job.future.done():
                continue
            replica = await self._free(job.ask.n)
            if job.future.done():
                continue
            replica.load += job.ask.n
            replica.given += 1
            if not replica.tasks:
                replica.last_sign = time.monotonic()
            task = asyncio.create_task(self._serve(job, replica))
            replica.tasks.add(task)
            task.add_done_callback(partial(self._served, job, replica))
            job.future.add_done_callback(lambda _, task=task: task.cancel())

    async def _free(self, n: int) -> Replica:
        limit = self._serving.concurrency
        while True:
            free = [r for r in self._replicas if r.up and (not r.load or r.load + n <= limit)]
            if free:
                return min(free, key=lambda r: (r.load, r.given))
            await self._news()

    async def _serve(self, job: _Job, replica: Replica) -> None:
        """Ask one replica, and see to what comes of it."""
        job.since = job.since or time.monotonic()
        try:
            made = await replica.complete(
                job.ask, job.params, job.params.max_tokens, self._serving.request_seconds
            )
            self._answered = time.monotonic()
            _settle(job, made)
        except Refused as error:
            self._answered = time.monotonic()
            _settle(job, [_error(str(error))] * job.ask.n)
        except Lost as error:
            self._spawn(self._again(job, replica, error))
        except EngineError as error:
            self._fail(error)

    def _served(self, job: _Job, replica: Replica, task: asyncio.Task[None]) -> None:
        """Take back what a request held, also of one that was cancelled before it began."""
        replica.load -= job.ask.n
        replica.tasks.discard(task)
        if not task.cancelled():
            self._look_at(task)
        elif not job.future.done() and not self._closed:  # the replica was lost, not the job
            self._queue.put_nowait(job)
        self._changed.set()

    async def _again(self, job: _Job, replica: Replica, error: Lost) -> None:
        """Try a request again after a pause, or give it up."""
        lost = not await self._examine(replica, error)
        if lost and replica.server:  # our server's end is nothing that the request did
            self._queue.put_nowait(job)
            return
        job.tries += 1
        if job.tries > self._serving.retries:
            why = f"no answer after {job.tries} tries: {error}"
            if self._answered > job.since:
                _settle(job, [_error(why)] * job.ask.n)
            else:
                self._fail(EngineError(f"engine vllm: {why}{self._told()}"))
            return
        pause = min(self._serving.backoff_seconds * 2 ** (job.tries - 1), LONGEST_PAUSE_S)
        log.info("engine=vllm try=%d pause=%.1f error=%s", job.tries, pause, error)
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        self._queue.put_nowait(job)

    async def _examine(self, replica: Replica, error: Lost) -> bool:
        """Return whether a replica that failed a request still works; takes it out otherwise."""
        seen = replica.since
        if replica.up and not await replica.alive(self._serving.stall_seconds, token=error.slow):
            self._lose(replica, seen, str(error))
        return replica.up

    def _lose(self, replica: Replica, since: float, why: str) -> None:
        """Take a replica out; what it was working on goes to the others, or waits for it.

        `since` says when the one that was found wanting came up: it may be another one by now.
        """
        if not replica.up or replica.since != since:
            return
        replica.up = False
        log.warning("engine=vllm url=%s lost: %s", replica.url, why)
        for task in list(replica.tasks):
            task.cancel()
        self._spawn(self._bring_up(replica, why))

    async def _bring_up(self, replica: Replica, why: str = "") -> None:
        """Return once a replica is ready, ours started (anew); fails the engine when it cannot."""
        try:
            if replica.server is not None:
                await self._start(replica, replica.server, why)
            else:
                await self._find(replica)
        except EngineError as error:
            self._fail(error)
            return
        replica.up, replica.since = True, time.monotonic()
        self._changed.set()

    async def _start(self, replica: Replica, server: Server, why: str) -> None:
        if why:
            self._restarts += 1
            self._fruitless = 0 if self._answered > replica.since else self._fruitless + 1
            if self._restarts > self._serving.restarts or self._fruitless > 1:
                raise EngineError(
                    f"engine vllm: the server failed {self._restarts} times"
                    f"{', twice without an answer' if self._fruitless > 1 else ''} "
                    f"(execution.vllm.restarts {self._serving.restarts}): {why}{self._told()}"
                )
            await asyncio.to_thread(server.stop, 0)
        begun = time.monotonic()
        server.start()
        try:
            await until(
                lambda: self._prepare(replica),
                seconds=self._serving.start_seconds,
                goes_on=lambda: server.running,
            )
        except Lost as error:
            waited = f"after {time.monotonic() - begun:.0f} s"
            limit = f"(execution.vllm.start_seconds {self._serving.start_seconds:g}): {error}"
            what = f"does not answer {waited} {limit}" if server.running else f"ended {waited}"
            raise EngineError(f"engine vllm: the server {what}{self._told()}") from error
        log.info("engine=vllm url=%s ready=%.1f s", replica.url, time.monotonic() - begun)

    async def _find(self, replica: Replica) -> None:
        """Wait for a server at a URL, as long as another one works or the time is not up."""
        last = time.monotonic()

        def goes_on() -> bool:
            nonlocal last
            if any(other.up for other in self._replicas):
                last = time.monotonic()
            return time.monotonic() - last < self._serving.lost_seconds

        try:
            await until(
                lambda: self._prepare(replica),
                seconds=self._serving.stage_seconds,
                goes_on=goes_on,
                pause_s=min(1.0, max(0.05, self._serving.backoff_seconds)),
            )
        except Lost as error:
            raise EngineError(
                f"engine vllm: none of {', '.join(self._serving.urls)} answers for "
                f"{self._serving.lost_seconds:g} s (execution.vllm.lost_seconds): {error}"
            ) from error

    async def _prepare(self, replica: Replica) -> None:
        setup = self._setup
        await replica.prepare(setup.name, self._checkpoint, setup.config.version)

    async def _watch(self, replica: Replica) -> None:
        """See to it that a replica with work answers now and then."""
        stall = self._serving.stall_seconds
        while True:
            await asyncio.sleep(stall / 4)
            if not replica.up or not replica.tasks:
                continue
            silent, seen = time.monotonic() - replica.last_sign, replica.since
            if silent > stall and not await replica.alive(stall, token=True):
                self._lose(replica, seen, f"no answer for {silent:.0f} s, not even with one token")

    async def _end_in(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._fail(
            EngineError(
                f"engine vllm: {len(self._jobs)} requests are not answered after {seconds:g} s, "
                "which is execution.vllm.stage_seconds"
            )
        )

    def _fail(self, error: EngineError) -> None:
        """End every request with this error, and refuse new ones."""
        self._error = self._error or error
        for job in list(self._jobs):
            if not job.future.done():
                job.future.set_exception(self._error)
        self._changed.set()

    def _told(self) -> str:
        """Return the end of our server's log, for an error."""
        with contextlib.suppress(OSError):
            return f"; its log ends: {self._server.told()}" if self._server else ""
        return ""

    async def _news(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        task.add_done_callback(self._look_at)

    def _look_at(self, task: asyncio.Task[None]) -> None:
        """Fail on an error that nobody expected, which would otherwise leave callers waiting."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("engine=vllm unexpected error", exc_info=error)
            self._fail(EngineError(f"engine vllm: {type(error).__name__}: {error}"))


def _settle(job: _Job, made: list[Completion]) -> None:
    if not job.future.done():
        job.future.set_result(made)


def _error(why: str) -> Completion:
    return Completion((), (), FinishReason.ERROR, why)
