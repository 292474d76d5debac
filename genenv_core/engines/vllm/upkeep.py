"""Keeps the replicas of an engine alive: brings them up, watches them, and replaces lost ones.

- It ends a server of ours that is gone or hangs whole and starts it anew, `restarts` times at most.
- It leaves a server at a URL out until that answers again; when all are silent for `lost_seconds`,
  the engine fails.
- It gives a server the checkpoint again that lost it, because somebody started the server anew.

It calls `fail` once, with an error that it cannot repair.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp

from genenv_core.engines.vllm.replica import LostAnswer, Replica, until
from genenv_core.engines.vllm.server import KEY_VARIABLE, VllmServer, VllmSetup
from genenv_core.errors import EngineError

log = logging.getLogger("genenv.engine")
KEEP_ALIVE_S = 3.0
"""vLLM closes a silent connection after 5 s; one that is used at that moment is a lost request."""

PORTS = 5
"""Ports that a start tries: another program may take one between our choice and the server."""


class Upkeep:
    """The replicas of one engine; everything here runs on one event loop.

    Args:
        checkpoint, setup: what is served, and how.
        server: ours, which is not started yet; None where the setup names URLs.
        spawn: runs something beside everything else until the engine is closed.
        changed: is called when a replica has become ready.
        fail: is called with what ends the engine.
    """

    def __init__(
        self,
        checkpoint: Path,
        setup: VllmSetup,
        server: VllmServer | None,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        changed: Callable[[], None],
        fail: Callable[[EngineError], None],
    ) -> None:
        """Contact nobody yet."""
        self._checkpoint, self._setup, self._server = checkpoint, setup, server
        self._serving = setup.serving
        self._spawn, self._changed, self._fail = spawn, changed, fail
        self._restarts = self._fruitless = 0
        self._session: aiohttp.ClientSession | None = None
        self.replicas: list[Replica] = []
        self.answered = 0.0
        """When an answer came last."""

    def open(self) -> None:
        """Begin to start the replicas; `changed` or `fail` reports the result."""
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S)
        timeout = aiohttp.ClientTimeout(total=None)
        session = self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        key = os.environ.get(KEY_VARIABLE, "")
        self.replicas = [Replica(session, url=url, key=key) for url in self._serving.urls]
        if not self.replicas:
            self.replicas = [Replica(session, server=self._server)]
        for replica in self.replicas:
            self._spawn(self._bring_up(replica))
            self._spawn(self._watch(replica))

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    @property
    def longest(self) -> int | None:
        """Return the longest sequence that every replica takes, None while it is unknown."""
        known = [r.longest for r in self.replicas if r.longest is not None]
        return min([*known, *filter(None, [self._setup.config.max_model_len])], default=None)

    def log_end(self) -> str:
        """Return the end of our server's log, for an error."""
        with contextlib.suppress(OSError):
            return f"; its log ends: {self._server.log_end()}" if self._server else ""
        return ""

    async def examine(self, replica: Replica, error: LostAnswer) -> bool:
        """Return whether a replica that failed a request still works; takes it out otherwise."""
        seen = replica.since
        if replica.up and not await replica.alive(self._serving.stall_seconds, token=error.slow):
            self.lose(replica, seen, str(error))
        return replica.up

    def lose(self, replica: Replica, since: float, why: str) -> None:
        """Take a replica out; its requests go to the others, or wait for it.

        `since` is the start time of the faulty server: a later start of the replica stays.
        """
        if not replica.up or replica.since != since:
            return
        replica.up = False
        log.warning("engine=vllm url=%s lost: %s", replica.url, why)
        for task in list(replica.tasks):
            task.cancel()
        self._spawn(self._bring_up(replica, why))

    async def _bring_up(self, replica: Replica, why: str = "") -> None:
        """Return once a replica is ready (ours is started anew), or fail the engine."""
        try:
            if replica.server is not None:
                await self._start(replica, replica.server, why)
            else:
                await self._find(replica)
        except EngineError as error:
            self._fail(error)
            return
        replica.up, replica.since = True, time.monotonic()
        self._changed()

    async def _start(self, replica: Replica, server: VllmServer, why: str) -> None:
        if why:
            self._restarts += 1
            self._fruitless = 0 if self.answered > replica.since else self._fruitless + 1
            if self._restarts > self._serving.restarts or self._fruitless > 1:
                raise EngineError(
                    f"engine vllm: the server failed {self._restarts} times"
                    f"{', twice without an answer' if self._fruitless > 1 else ''} "
                    f"(execution.vllm.restarts {self._serving.restarts}): {why}{self.log_end()}"
                )
        begun = time.monotonic()
        for port in range(PORTS):
            await asyncio.to_thread(server.stop, 0)
            server.start()
            try:
                await until(
                    lambda: self._prepare(replica),
                    seconds=self._serving.start_seconds,
                    goes_on=lambda: server.running,
                )
                break
            except LostAnswer as error:
                if port + 1 < PORTS and not server.running and server.port_was_taken():
                    continue
                waited = f"after {time.monotonic() - begun:.0f} s"
                limit = f"(execution.vllm.start_seconds {self._serving.start_seconds:g}): {error}"
                what = f"does not answer {waited} {limit}" if server.running else f"ended {waited}"
                raise EngineError(f"engine vllm: the server {what}{self.log_end()}") from error
        log.info("engine=vllm url=%s ready=%.1f s", replica.url, time.monotonic() - begun)

    async def _find(self, replica: Replica) -> None:
        """Wait for a server at a URL, as long as another one works or the time is not up."""
        last = time.monotonic()

        def goes_on() -> bool:
            nonlocal last
            if any(other.up for other in self.replicas):
                last = time.monotonic()
            return time.monotonic() - last < self._serving.lost_seconds

        try:
            await until(
                lambda: self._prepare(replica),
                seconds=self._serving.stage_seconds,
                goes_on=goes_on,
                pause_s=min(1.0, max(0.05, self._serving.backoff_seconds)),
            )
        except LostAnswer as error:
            raise EngineError(
                f"engine vllm: none of {', '.join(self._serving.urls)} answers for "
                f"{self._serving.lost_seconds:g} s (execution.vllm.lost_seconds): {error}"
            ) from error

    async def _prepare(self, replica: Replica) -> None:
        setup = self._setup
        await replica.prepare(setup.name, self._checkpoint, setup.config)

    async def _watch(self, replica: Replica) -> None:
        """Take a replica out that has requests and answers nothing for too long."""
        stall = self._serving.stall_seconds
        while True:
            await asyncio.sleep(stall / 4)
            if not replica.up or not replica.tasks:
                continue
            silent, seen = time.monotonic() - replica.last_sign, replica.since
            if silent > stall and not await replica.alive(stall, token=True):
                self.lose(replica, seen, f"no answer for {silent:.0f} s, not even with one token")
