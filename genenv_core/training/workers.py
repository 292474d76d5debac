"""Training in worker processes that live as long as the run.

One update needs a process of its own: torch's random state is global, so two updates side by side
in one process would not be reproducible. Loading torch and TRL costs more than a small update, so
the workers stay. They end with their parent, however it ends.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from typing import TypeVar

from genenv_core.errors import TrainingError
from genenv_core.training.base import GrpoRequest, RwrRequest, UpdateResult
from genenv_core.training.warmstart import WarmStartRequest, WarmStartResult

Result = TypeVar("Result")
WORKERS = 2
"""grpo_update and rwr_update side by side; the two warm starts likewise."""


class WorkerTrainer:
    """The Trainer that hands each call to a worker process; safe to call from several threads."""

    def __init__(self) -> None:
        """Start no process yet: the first call does."""
        self._pool: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()

    def grpo(self, request: GrpoRequest) -> UpdateResult:
        """Return the agent after one GRPO update."""
        return self._call(_grpo, request)

    def rwr(self, request: RwrRequest) -> UpdateResult:
        """Return pi_env after one RWR update."""
        return self._call(_rwr, request)

    def warm_start(self, request: WarmStartRequest) -> WarmStartResult:
        """Return a freshly warm-started tiny model."""
        return self._call(_warm_start, request)

    def close(self) -> None:
        """End the workers at once, also in the middle of an update."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            for process in list((pool._processes or {}).values()):  # pyright: ignore[reportPrivateUsage]
                process.kill()
            pool.shutdown(wait=True, cancel_futures=True)

    def _call(self, function: Callable[..., Result], request: object) -> Result:
        with self._lock:
            if self._pool is None:
                self._pool = ProcessPoolExecutor(
                    WORKERS, mp_context=get_context("spawn"), initializer=_start
                )
            future: Future[Result] = self._pool.submit(function, request)
        try:
            return future.result()
        except BrokenProcessPool as error:
            with self._lock:
                self._pool = None
            raise TrainingError(
                f"the training process of {function.__name__[1:]} was killed, most likely for want "
                "of memory: lower grpo.micro_batch_rows or rwr.micro_batch_rows and run again"
            ) from error


def _start() -> None:
    """Prepare a worker: end when the parent ends, leave Ctrl-C to the parent."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:

        def watch() -> None:
            wait([parent.sentinel])
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()


def _grpo(request: GrpoRequest) -> UpdateResult:
    from genenv_core.training.local import LocalTrainer

    return LocalTrainer().grpo(request)


def _rwr(request: RwrRequest) -> UpdateResult:
    from genenv_core.training.local import LocalTrainer

    return LocalTrainer().rwr(request)


def _warm_start(request: WarmStartRequest) -> WarmStartResult:
    from genenv_core.training.warmstart import warm_start

    return warm_start(request)
