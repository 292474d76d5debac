"""Training in worker processes that live as long as the run.

One update needs a process of its own: torch's random state is global, so two updates side by side
in one process would not be reproducible. Loading torch and TRL costs more than a small update, so
the workers stay. They end with their parent, however it ends. They ignore signals, because a whole
process group gets them and the parent handles them; `request_stop` ends an update early.

An update on GPUs, or in several processes, is launched instead (`launch.py` beside this file).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from multiprocessing.synchronize import Event
from typing import Any, TypeVar

from genenv_core.errors import Stopped, TrainingError
from genenv_core.training.processes.launch import Launcher
from genenv_core.training.processes.orphans import silence_orphans
from genenv_core.training.requests import UpdateRequest, UpdateResult, run_update
from genenv_core.training.warm_start.request import WarmStartRequest, WarmStartResult

Result = TypeVar("Result")
WORKERS = 2
"""grpo_update and rwr_update side by side; the two warm starts likewise."""

LESS_MEMORY = "lower grpo.micro_batch_rows or rwr.micro_batch_rows and run again"
LEFT_TO_PARENT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class WorkerTrainer:
    """Hands each call to a worker process; safe to call from several threads."""

    def __init__(self) -> None:
        """Start no process yet: `start` or the first call does."""
        self._workers: ProcessPoolExecutor | None = None
        self._stop: Event | None = None
        self._stopping = False
        self._lock = threading.Lock()
        self._launcher = Launcher()

    def start(self) -> None:
        """Start the workers now; the first calls then find torch and transformers loaded."""
        with self._lock:
            for _ in range(WORKERS):
                self._submit(_ready)

    def update(self, request: UpdateRequest) -> UpdateResult:
        """Return what an update did; see `training.requests.run_update`."""
        if request.training.own_processes:
            return self._launcher.update(request)
        return self._call(_update, request, request.loss)

    def warm_start(self, request: WarmStartRequest) -> WarmStartResult:
        """Return a newly warm-started tiny model."""
        return self._call(_warm_start, request, "warm_start")

    def request_stop(self) -> None:
        """Let running updates save a checkpoint after their current step and raise `Stopped`.

        Later updates raise it at once. A warm start has no checkpoints and continues.
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
            workers, self._workers = self._workers, None
        if workers is not None:
            _kill(workers)
            workers.shutdown(wait=True, cancel_futures=True)

    def _call(self, function: Callable[[Any], Result], request: object, what: str) -> Result:
        with self._lock:
            if self._stopping:
                raise Stopped(f"{what} was not started: a stop was requested")
            workers, future = self._submit(function, request)
        try:
            return future.result()
        except MemoryError as error:  # before the update itself began: that names its own setting
            raise TrainingError(
                f"the training process of {what} has no memory left: {LESS_MEMORY}"
            ) from error
        except BrokenProcessPool as error:
            with self._lock:
                if self._workers is workers:
                    self._workers = None
            # The executor ends the rest by SIGTERM, which workers ignore, and waits for them.
            _kill(workers)
            if self._stopping:
                raise Stopped(
                    f"{what} was ended: the same command continues from its last "
                    "trainer checkpoint, or starts it again"
                ) from error
            raise TrainingError(
                f"the training process of {what} was killed, most likely for want "
                f"of memory: {LESS_MEMORY}"
            ) from error

    def _submit(
        self, function: Callable[..., Result], *arguments: object
    ) -> tuple[ProcessPoolExecutor, Future[Result]]:
        """Hand a call to the workers, which are started when there are none; holds the lock."""
        if self._workers is None:
            silence_orphans()
            context = get_context("spawn")
            self._stop = context.Event()
            self._workers = ProcessPoolExecutor(
                WORKERS, mp_context=context, initializer=_start, initargs=(self._stop,)
            )
        # This may start a worker, which inherits the mask: a signal to the whole group must not
        # end it while it is still importing.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, LEFT_TO_PARENT)
        try:
            return self._workers, self._workers.submit(function, *arguments)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _kill(workers: ProcessPoolExecutor) -> None:
    for process in list((workers._processes or {}).values()):  # pyright: ignore[reportPrivateUsage]
        process.kill()


_stop: Event | None = None
"""In a worker: set when its updates are to end."""


def _start(stop: Event) -> None:
    """Prepare a worker: end when the parent ends, leave signals that end a run to the parent."""
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


def _ready() -> None:
    """Load what every call needs; the parent does without it."""
    import_module("genenv_core.training.warm_start.models")


def _warm_start(request: WarmStartRequest) -> WarmStartResult:
    from genenv_core.training.warm_start.models import warm_start

    return warm_start(request)


def _update(request: UpdateRequest) -> UpdateResult:
    return run_update(request, lambda: _stop is not None and _stop.is_set())
