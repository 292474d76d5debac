"""What stages share inside one process: the training workers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genenv_core.training.workers import WorkerTrainer

_trainer: WorkerTrainer | None = None
_lock = threading.Lock()


def trainer() -> WorkerTrainer:
    """Return the trainer of this process; its workers start with the first update."""
    global _trainer
    with _lock:
        if _trainer is None:
            from genenv_core.training.workers import WorkerTrainer

            _trainer = WorkerTrainer()
        return _trainer


def close() -> None:
    """End the workers; a later update starts new ones."""
    global _trainer
    with _lock:
        if _trainer is not None:
            _trainer.close()
        _trainer = None


@contextlib.contextmanager
def ended() -> Iterator[None]:
    """End the workers behind the block, however it ends."""
    try:
        yield
    finally:
        close()
