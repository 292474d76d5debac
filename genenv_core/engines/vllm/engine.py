"""The engine `vllm`: a sampler behind HTTP servers, for callers in any thread.

All talking happens on one event loop in a thread of the engine's own (`fleet`). `submit` hands it
one request and returns a future, so that a driver of episodes may let each of them advance by
itself; `sample` is `submit` for many.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from genenv_core.engines.protocol import EngineSetup
from genenv_core.engines.vllm.fleet import Fleet
from genenv_core.engines.vllm.server import VllmServer, VllmSetup, interpreter, server_command
from genenv_core.errors import EngineError
from genenv_core.types import Completion, SampleRequest, SamplingParams

Result = TypeVar("Result")
POLL_S = 0.25
"""How often a waiting caller looks whether it was cancelled."""


def open_engine(setup: EngineSetup) -> VllmEngine:
    """Return the engine on a checkpoint.

    A server knows the model by its digest, so that answers say which weights they are from. Raises
    ConfigError, ModelError or EngineError where no server can serve it.
    """
    name = f"genenv-{setup.digest[:16]}"
    vllm = VllmSetup(
        name=name,
        config=setup.compute.vllm,
        serving=setup.execution.vllm,
        log=setup.durable() / f"{name}.log",
        # With top_p 1 the two modes differ by the temperature alone, which logprobs must include.
        logprobs_mode="processed_logprobs" if setup.top_p == 1 else "raw_logprobs",
        check=setup.check,
    )
    return VllmEngine(setup.checkpoint, vllm)


class VllmEngine:
    """Samples from one checkpoint by vLLM servers. See `Engine` for the promises.

    Equal requests give equal tokens as far as the server's arithmetic does; which requests share a
    batch there changes its rounding.
    """

    def __init__(self, checkpoint: Path, setup: VllmSetup) -> None:
        """Start the server, or find those at URLs, and wait until one is ready."""
        self._setup = setup
        self.server = None if setup.serving.urls else _own(checkpoint, setup)
        """Our server; None for servers at URLs."""
        self._fleet = Fleet(checkpoint, setup, self.server)
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True)
        self._thread.start()
        try:
            self._await(self._fleet.open())
        except BaseException:
            self.close()
            raise

    @property
    def server_pid(self) -> int | None:
        """Return the pid of our server's process group, None where there is none now."""
        return self.server.pid if self.server and self.server.running else None

    def submit(
        self, request: SampleRequest, params: SamplingParams
    ) -> concurrent.futures.Future[Completion]:
        async def one() -> Completion:
            return (await self._fleet.answer([request], params))[0]

        self._refuse_when_closed()
        return asyncio.run_coroutine_threadsafe(one(), self._loop)

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        self._refuse_when_closed()
        return self._await(self._fleet.answer(requests, params))

    def close(self) -> None:
        """Let what is under way end, end our server, and return when its processes are gone."""
        if self._loop.is_closed():
            return
        self._closed = True
        try:
            asyncio.run_coroutine_threadsafe(self._fleet.close(), self._loop).result()
        finally:
            if self.server is not None:
                self.server.stop(self._setup.serving.stop_seconds)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise EngineError("engine vllm: sample was called after close")

    def _await(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of `work` on the loop; what `check` raises cancels the work."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            while True:
                try:
                    return future.result(POLL_S)
                except concurrent.futures.TimeoutError:
                    if future.done():
                        raise
                self._setup.check()
        except BaseException:
            future.cancel()
            raise


def _own(checkpoint: Path, setup: VllmSetup) -> VllmServer:
    return VllmServer(
        server_command(
            checkpoint,
            setup.name,
            setup.config,
            python=interpreter(setup.serving.python),
            logprobs_mode=setup.logprobs_mode,
            log=setup.log,
        )
    )
