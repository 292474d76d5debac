"""Spreads requests over servers and tries them again, all on one event loop.

Failures, and what the loop does about them:

- an answer 5xx, a lost connection, a time-out: it tries the request again, on another server if
  there is one; a request that never succeeds while others do becomes a completion with the finish
  reason `error`;
- a request that the server refuses becomes such a completion, unless the server refuses all;
- a server that is gone, hangs or has forgotten the checkpoint: `upkeep` brings it back, and the
  loop repeats its requests from the same seeds;
- other weights than requested, or an answer that does not fit the request: the engine fails.

A failed engine ends every request with its error.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from genenv_core.engines.vllm.replica import Forgotten, LostAnswer, RefusedRequest, Replica
from genenv_core.engines.vllm.server import VllmServer, VllmSetup
from genenv_core.engines.vllm.upkeep import Upkeep
from genenv_core.engines.vllm.wire import WireRequest, asked
from genenv_core.errors import EngineError
from genenv_core.types import Completion, FinishReason, SampleRequest, SamplingParams

log = logging.getLogger("genenv.engine")
LONGEST_PAUSE_S = 30.0
REFUSALS = 16
"""So many refusals without one answer end the engine, as the fault is not the requests'."""


@dataclass(eq=False, slots=True)
class _RequestJob:
    """One HTTP request on its way; `since` is when it was first handed out."""

    ask: WireRequest
    params: SamplingParams
    future: asyncio.Future[list[Completion]]
    tries: int = 0
    since: float = 0.0


class Fleet:
    """The replicas and the requests on their way; everything here runs on one event loop."""

    def __init__(self, checkpoint: Path, setup: VllmSetup, server: VllmServer | None) -> None:
        """Take our server, which is not started yet, or None where the setup names URLs."""
        self._serving = setup.serving
        self._error: EngineError | None = None
        self._closed = False
        self._good = self._refused = 0
        self._jobs: set[_RequestJob] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._queue: asyncio.Queue[_RequestJob] = asyncio.Queue()
        self._changed = asyncio.Event()
        self._upkeep = Upkeep(
            checkpoint, setup, server,
            spawn=self._spawn, changed=self._changed.set, fail=self._fail,
        )  # fmt: skip

    async def open(self) -> None:
        """Return when one replica is ready; raises EngineError when all have failed."""
        self._upkeep.open()
        self._spawn(self._end_in(self._serving.stage_seconds))
        while not any(replica.up for replica in self._upkeep.replicas):
            if self._error:
                raise self._error
            await self._news()
        self._spawn(self._dispatch())

    async def close(self) -> None:
        """Wait a while for requests under way, then end the rest; later requests are errors."""
        self._closed = True
        if self._jobs and not self._error:
            futures = [job.future for job in self._jobs]
            await asyncio.wait(futures, timeout=self._serving.stop_seconds)
        self._fail(EngineError("engine vllm: it was closed before the request was answered"))
        tasks = [*self._background, *(t for r in self._upkeep.replicas for t in r.all_tasks())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._upkeep.close()

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
        return [_error(bad, lasting=True) if bad else next(made) for bad in problems]

    def _problem(self, request: SampleRequest) -> str:
        """Return why this prompt cannot be continued, or ''."""
        length, longest = len(request.prompt_ids), self._upkeep.longest
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

    def _enqueue(self, ask: WireRequest, params: SamplingParams) -> _RequestJob:
        if self._error:
            raise self._error
        longest = self._upkeep.longest
        if longest is not None:
            room = longest - len(ask.prompt_ids)
            params = replace(params, max_tokens=min(params.max_tokens, room))
        job = _RequestJob(ask, params, asyncio.get_running_loop().create_future())
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
            free = [
                r for r in self._upkeep.replicas if r.up and (not r.load or r.load + n <= limit)
            ]
            if free:
                return min(free, key=lambda r: (r.load, r.given))
            await self._news()

    async def _serve(self, job: _RequestJob, replica: Replica) -> None:
        """Ask one replica, and handle its answer or its failure."""
        job.since = job.since or time.monotonic()
        seen = replica.since
        try:
            made = await replica.complete(
                job.ask, job.params, job.params.max_tokens, self._serving.request_seconds
            )
            self._good += 1
            self._upkeep.answered = time.monotonic()
            _settle(job, made)
        except RefusedRequest as error:
            self._upkeep.answered = time.monotonic()
            self._refuse(job, str(error))
        except LostAnswer as error:
            self._spawn(self._again(job, replica, seen, error))
        except EngineError as error:
            self._fail(error)

    def _refuse(self, job: _RequestJob, why: str) -> None:
        """Answer a refused request with an error; fail the engine when all were refused."""
        self._refused += 1
        if not self._good and self._refused >= REFUSALS:
            failed = f"engine vllm: each of the first {self._refused} requests failed: {why}"
            self._fail(EngineError(f"{failed}{self._upkeep.log_end()}"))
        _settle(job, [_error(why, lasting=True)] * job.ask.n)

    def _served(self, job: _RequestJob, replica: Replica, task: asyncio.Task[None]) -> None:
        """Release what a request held, even one that was cancelled before it began."""
        replica.load -= job.ask.n
        replica.tasks.discard(task)
        if not task.cancelled():
            self._look_at(task)
        elif not job.future.done() and not self._closed:  # the replica was lost, not the job
            self._queue.put_nowait(job)
        self._changed.set()

    async def _again(
        self, job: _RequestJob, replica: Replica, seen: float, error: LostAnswer
    ) -> None:
        """Try a request again after a pause, or give it up."""
        if isinstance(error, Forgotten):
            self._upkeep.lose(replica, seen, str(error))
        elif not await self._upkeep.examine(replica, error) and replica.server:
            self._queue.put_nowait(job)  # our server's end is nothing that the request did
            return
        job.tries += 1
        if job.tries > self._serving.retries:
            why = f"no answer after {job.tries} tries: {error}"
            if self._upkeep.answered > job.since:
                _settle(job, [_error(why)] * job.ask.n)
            else:
                self._fail(EngineError(f"engine vllm: {why}{self._upkeep.log_end()}"))
            return
        pause = min(self._serving.backoff_seconds * 2 ** (job.tries - 1), LONGEST_PAUSE_S)
        log.info("engine=vllm try=%d pause=%.1f error=%s", job.tries, pause, error)
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        self._queue.put_nowait(job)

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


def _settle(job: _RequestJob, made: list[Completion]) -> None:
    if not job.future.done():
        job.future.set_result(made)


def _error(why: str, *, lasting: bool = False) -> Completion:
    return Completion((), (), FinishReason.ERROR, why, lasting)
