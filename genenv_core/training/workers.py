"""Training in worker processes that live as long as the run.

One update needs a process of its own: torch's random state is global, so two updates side by side
in one process would not be reproducible. Loading torch and TRL costs more than a small update, so
the workers stay. They end with their parent, however it ends. Signals are left to
the parent, because a process group gets them as a whole; `request_stop` ends an update early.

An update on GPUs, or in several processes, is launched instead (`genenv_core.training.launch`).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from multiprocessing.synchronize import Event
from typing import TypeVar

from genenv_core.errors import Stopped, TrainingError
from genenv_core.training.base import GrpoRequest, RwrRequest, UpdateResult
from genenv_core.training.launch import Launcher
from genenv_core.training.local import LocalTrainer
from genenv_core.training.warmstart import WarmStartRequest, WarmStartResult

Result = TypeVar("Result")
WORKERS = 2
"""grpo_update and rwr_update side by side; the two warm starts likewise."""

LESS_MEMORY = "lower grpo.micro_batch_rows or rwr.micro_batch_rows and run again"
LEFT_TO_PARENT = (signal.SIGINT, signal.SIGTERM)


class WorkerTrainer:
    """The Trainer that hands each call to a worker process; safe to call from several threads."""

    def __init__(self) -> None:
        """Start no process yet: the first call does."""
        self._pool: ProcessPoolExecutor | None = None
        self._stop: Event | None = None
        self._stopping = False
        self._lock = threading.Lock()
        self._launcher = Launcher()

    def grpo(self, request: GrpoRequest) -> UpdateResult:
        """Return the agent after one GRPO update."""
        if request.training.launched:
            return self._launcher.run("grpo", request)
        return self._call(_grpo, request)

    def rwr(self, request: RwrRequest) -> UpdateResult:
        """Return pi_env after one RWR update."""
        if request.training.launched:
            return self._launcher.run("rwr", request)
        return self._call(_rwr, request)

    def warm_start(self, request: WarmStartRequest) -> WarmStartResult:
        """Return a freshly warm-started tiny model."""
        return self._call(_warm_start, request)

    def request_stop(self) -> None:
        """Let running updates save a checkpoint after their current step and raise `Stopped`.

        Updates that come later raise it at once. A warm start has no checkpoints: it goes on.
        """
        self._launcher.request_stop()
        with self._lock:
            self._stopping = True
            if self._stop is not None:
                self._stop.set()

    def close(self) -> None:
        """End the workers at once, also in the middle of an update."""
        self._launcher.close()
        with self._lock:
            self._stopping = True
            pool, self._pool = self._pool, None
        if pool is not None:
            _kill(pool)
            pool.shutdown(wait=True, cancel_futures=True)

    def _call(self, function: Callable[..., Result], request: object) -> Result:
        with self._lock:
            if self._stopping:
                raise Stopped(f"{function.__name__[1:]} was not started: a stop was requested")
            if self._pool is None:
                context = get_context("spawn")
                self._stop = context.Event()
                self._pool = ProcessPoolExecutor(
                    WORKERS, mp_context=context, initializer=_start, initargs=(self._stop,)
                )
            pool = self._pool
            # This may start a worker, which inherits the mask: a signal to the whole group must
            # not end it while it is still importing.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, LEFT_TO_PARENT)
            try:
                future: Future[Result] = pool.submit(function, request)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            return future.result()
        except MemoryError as error:  # before the update itself began: that names its own setting
            raise TrainingError(
                f"the training process of {function.__name__[1:]} has no memory left: {LESS_MEMORY}"
            ) from error
        except BrokenProcessPool as error:
            with self._lock:
                if self._pool is pool:
                    self._pool = None
            # The pool ends what is left of it by SIGTERM, which workers ignore, and waits for it.
            _kill(pool)
            if self._stopping:
                raise Stopped(
                    f"{function.__name__[1:]} was ended: the same command continues from its last "
                    "trainer checkpoint, or starts it again"
                ) from error
            raise TrainingError(
                f"the training process of {function.__name__[1:]} was killed, most likely for want "
                f"of memory: {LESS_MEMORY}"
            ) from error


def _kill(pool: ProcessPoolExecutor) -> None:
    for process in list((pool._processes or {}).values()):  # pyright: ignore[reportPrivateUsage]
        process.kill()


_stop: Event | None = None
"""In a worker: set when its updates are to end."""


def _start(stop: Event) -> None:
    """Prepare a worker: end when the parent ends, leave Ctrl-C and SIGTERM to the parent."""
    global _stop
    _stop = stop
    for number in LEFT_TO_PARENT:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, LEFT_TO_PARENT)
    parent = parent_process()
    if parent is not None:

        def watch() -> None:
            wait([parent.sentinel])
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()


def _grpo(request: GrpoRequest) -> UpdateResult:
    return LocalTrainer(_stop_requested).grpo(request)


def _rwr(request: RwrRequest) -> UpdateResult:
    return LocalTrainer(_stop_requested).rwr(request)


def _stop_requested() -> bool:
    return _stop is not None and _stop.is_set()


def _warm_start(request: WarmStartRequest) -> WarmStartResult:
    from genenv_core.training.warmstart import warm_start

    return warm_start(request)
