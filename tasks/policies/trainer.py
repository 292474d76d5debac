"""The training workers, which the stages of one process share."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING

from tasks.stage.progress import check

if TYPE_CHECKING:
    from genenv_core.training.processes.workers import WorkerTrainer

_trainer: WorkerTrainer | None = None
_lock = threading.Lock()


def trainer() -> WorkerTrainer:
    """Return the trainer of this process; its workers start with the first call.

    Raises Cancelled in a cancelled run, whose end would otherwise wait for new workers.
    """
    global _trainer
    with _lock:
        check()
        if _trainer is None:
            from genenv_core.training.processes.workers import WorkerTrainer

            _trainer = WorkerTrainer()
        return _trainer


def request_stop() -> None:
    """Ask running updates to end where they can continue; see `WorkerTrainer.request_stop`."""
    with _lock:
        if _trainer is not None:
            _trainer.request_stop()


def close() -> None:
    """End the workers; a later update starts new ones."""
    global _trainer
    with _lock:
        if _trainer is not None:
            _trainer.close()
        _trainer = None


@contextlib.contextmanager
def ended() -> Generator[None]:
    """End the workers after the block, however it ends."""
    try:
        yield
    finally:
        close()
