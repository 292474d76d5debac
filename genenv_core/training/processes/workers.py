"""Training in worker processes that live as long as the run.

One update needs a process of its own: torch's random state is global, so two updates side by side
in one process would not be reproducible. Loading torch and TRL costs more than a small update, so
the workers stay. They end with their parent, however it ends. They ignore signals, because a whole
process group gets them and the parent handles them; `request_stop` ends an update early.

A worker for a GPU sees that one alone, and gives the memory of an update back after it. An update
in several processes does not run in a worker (`launch.py` beside this file starts it).
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, TypeVar

from genenv_core.config.sections.compute import Device
from genenv_core.errors import OutOfMemory, Stopped, TrainingError
from genenv_core.importing import load
from genenv_core.machine.named_secrets import secrets_named
from genenv_core.machine.surroundings import environment
from genenv_core.training.processes import lines
from genenv_core.training.processes.attempts import attempted, visible_gpus
from genenv_core.training.processes.launch import Launcher
from genenv_core.training.processes.orphans import silence_orphans
from genenv_core.training.requests import UpdateRequest, UpdateResult
from genenv_core.training.updates.table import UPDATES, run_update
from genenv_core.training.warm_start.request import WarmStartRequest, WarmStartResult

log = logging.getLogger("genenv.training")

Result = TypeVar("Result")
WORKERS = 2
"""Workers for the updates of both policies side by side, and for the two warm starts likewise."""

LEFT_TO_PARENT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class _Worker:
    """A process that computes one call at a time, and the flag that ends its update early.

    Each has a pool of its own, so a process that dies ends no other's update.
    """

    device: Device
    pool: ProcessPoolExecutor
    stop: Event
    begun: Any
    """A byte of shared memory: whether the process began its last call. It has no lock, because a
    killed process could hold one for ever."""
    turn: threading.Lock = field(default_factory=threading.Lock)
    """The thread that ends the worker holds this lock."""

    @classmethod
    def start(cls, device: Device) -> _Worker:
        """Return a worker whose process starts with the first call."""
        silence_orphans()
        context = get_context("spawn")
        shared = context.Event(), context.Value("b", 0, lock=False)
        made = environment(os.environ)
        if device == "cuda":
            made["CUDA_VISIBLE_DEVICES"] = visible_gpus(made.get("CUDA_VISIBLE_DEVICES"), 1)
        given = (*shared, made)
        pool = ProcessPoolExecutor(1, mp_context=context, initializer=_start, initargs=given)
        return cls(device, pool, *shared)

    @property
    def processes(self) -> list[BaseProcess]:
        return list((self.pool._processes or {}).values())  # pyright: ignore[reportPrivateUsage]

    def submit(self, function: Callable[..., Result], *arguments: object) -> Future[Result]:
        # This may start the process, which inherits the mask: a signal to the whole group must not
        # end it while it is still importing.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, LEFT_TO_PARENT)
        try:
            return self.pool.submit(function, *arguments)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def end(self) -> None:
        """End its process at once; the executor would use SIGTERM, which the process ignores.

        `close` may call this while the thread of the update does: an executor that two threads shut
        down at once closes its pipes twice, and the second time fails (EBADF).
        """
        with self.turn:
            for process in self.processes:
                process.kill()
            self.pool.shutdown(wait=True, cancel_futures=True)


class WorkerTrainer:
    """Passes each call to a worker process; safe to call from several threads.

    It replaces a worker that died without a call.
    """

    def __init__(self) -> None:
        """Start no process yet: `start` or the first call does."""
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []
        self._free = threading.Semaphore(WORKERS)
        self._stopping = False
        self._lock = threading.Lock()
        self._launcher = Launcher()

    def start(self, workers: int = WORKERS, device: Device = "cpu") -> None:
        """Start so many workers now; the first calls then find torch and transformers loaded."""
        with self._lock:
            for _ in range(workers - len(self._idle) - len(self._busy)):
                self._idle.append(_Worker.start(device))
                self._idle[-1].submit(_ready)

    def update(self, request: UpdateRequest) -> UpdateResult:
        """Return the result of an update; see `training.updates.table.run_update`."""
        alone = not request.training.own_processes
        return attempted(request, self._attempt if alone else self._launcher.update)

    def _attempt(self, request: UpdateRequest) -> UpdateResult:
        try:
            rows, device = UPDATES[request.loss].rows_field, request.training.device
            return self._call(_update, request, request.loss, rows, device)
        finally:
            lines.told(_lines(request))

    def warm_start(self, request: WarmStartRequest) -> WarmStartResult:
        """Return a newly warm-started tiny model."""
        # Its process has no variable of a person's own, and the domain may need a server's key.
        started = partial(_warm_start, keys=secrets_named(request.domain_options))
        return self._call(started, request, "warm_start", "bootstrap.batch_rows")

    def request_stop(self) -> None:
        """Ask running updates to save a checkpoint after their step, and to raise `Stopped`.

        Later updates raise it at once. A warm start has no checkpoints and continues.
        """
        self._launcher.request_stop()
        with self._lock:
            self._stopping = True
            for worker in self._busy:
                worker.stop.set()

    def close(self) -> None:
        """End the workers at once, even in the middle of an update."""
        self._launcher.close()
        with self._lock:
            self._stopping = True
            workers, self._idle = [*self._idle, *self._busy], []
        for worker in workers:
            worker.end()

    def _call(
        self,
        function: Callable[[Any], Result],
        request: object,
        what: str,
        lower: str,
        device: Device = "cpu",
    ) -> Result:
        """Return a worker's result; `lower` is the field to lower where memory runs out."""
        with self._free:
            while True:
                worker, fresh = self._take(what, device)
                lives = True
                try:
                    return worker.submit(_compute, function, request).result()
                except OutOfMemory:  # whoever asks again gets a process that holds nothing
                    lives = False
                    raise
                except MemoryError as error:  # before the update itself, which names its setting
                    raise TrainingError(
                        f"the training process of {what} has no memory left: lower {lower} "
                        "and run again"
                    ) from error
                except BrokenProcessPool as error:
                    lives = False
                    if self._stopping:
                        raise Stopped(
                            f"{what} was ended: the same command continues from its last "
                            "trainer checkpoint, or starts it again"
                        ) from error
                    if worker.begun.value or fresh:
                        raise TrainingError(
                            f"the training process of {what} was killed, most likely for want "
                            f"of memory: lower {lower} and run again"
                        ) from error
                finally:
                    self._put_back(worker, lives=lives)
                log.warning(
                    "a training process that had nothing to do has ended: %s gets a new one", what
                )

    def _take(self, what: str, device: Device) -> tuple[_Worker, bool]:
        """Return a waiting worker of the device, or else a new one, and whether it is new."""
        with self._lock:
            if self._stopping:
                raise Stopped(f"{what} was not started: a stop was requested")
            waiting = next((worker for worker in self._idle if worker.device == device), None)
            worker, fresh = waiting or _Worker.start(device), waiting is None
            if not fresh:
                self._idle.remove(worker)
            worker.begun.value = 0
            self._busy.append(worker)
        return worker, fresh

    def _put_back(self, worker: _Worker, *, lives: bool) -> None:
        with self._lock:
            self._busy.remove(worker)
            waits = lives and not self._stopping
            if waits:
                self._idle.append(worker)
        if not waits:
            worker.end()


_stop: Event | None = None
"""In a worker: the parent sets it to end the worker's updates."""
_begun: Any = None
"""In a worker: `_Worker.begun`."""


def _start(stop: Event, begun: Any, made: dict[str, str]) -> None:
    """Prepare a worker: it ends when the parent ends, and ignores the signals that end a run.

    Before it loads torch, it sets the environment `made` and drops every other variable.
    """
    global _stop, _begun
    _stop, _begun = stop, begun
    os.environ.clear()
    os.environ.update(made)
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
    """Load the libraries that every call needs; the parent does without them."""
    load("genenv_core.training.warm_start.models")


def _compute(function: Callable[[Any], Result], request: object) -> Result:
    _begun.value = 1
    return function(request)


def _warm_start(request: WarmStartRequest, keys: dict[str, str]) -> WarmStartResult:
    _ready()
    from genenv_core.training.warm_start.models import warm_start

    lent = {name: key for name, key in keys.items() if key and name not in os.environ}
    os.environ.update(lent)
    try:
        return warm_start(request)
    finally:  # the process lives on, for updates that need none
        for name in lent:
            del os.environ[name]


def _update(request: UpdateRequest) -> UpdateResult:
    with lines.kept(_lines(request)):
        return run_update(request, lambda: _stop is not None and _stop.is_set())


def _lines(request: UpdateRequest) -> Path:
    """Return the path of an update's log lines, beside its output."""
    return request.output.parent / f".{request.output.name}.log"
