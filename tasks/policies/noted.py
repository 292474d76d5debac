"""Reads how far a training process is from the file to which it adds the loss of each step."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from pathlib import Path

from genenv_core.training.warm_start.request import noted_steps
from tasks.stage import StageContext
from tasks.stage.inputs import In
from tasks.stage.progress import Cancelled

SHOWN_S = 1.0
"""Seconds between two reports."""

WATCHER = "steps"
"""Name of the thread that reports how far an update is."""


def show_steps(
    context: StageContext[In], noted: Path, planned: int | None, *, part: str = "", before: int = 0
) -> None:
    """Report the steps and the loss of a stage, or of the named part of it.

    `planned` is None at the end, also of a stage that ends before its last planned step. `before`
    are the steps of earlier updates; `planned` counts them too.
    """
    done, loss = noted_steps(noted)
    message = "" if loss is None else f"loss {loss:.3f}"
    context.progress(before + done, planned or before + done, "steps", part=part, message=message)


@contextmanager
def shown_steps(
    context: StageContext[In], noted: Path, planned: int, *, part: str = "", before: int = 0
) -> Generator[None]:
    """Report the steps and the loss of the update in the block, as `show_steps` does.

    The reports begin when the training process has begun the file: an update that continues from a
    trainer checkpoint begins it with the steps before, and its rate counts from there. The block
    may end before the last steps are reported.
    """
    over = threading.Event()

    def watch() -> None:
        with suppress(Cancelled):  # another thread asks the update to end
            while not over.wait(SHOWN_S):
                if noted.exists():
                    show_steps(context, noted, planned, part=part, before=before)

    # A copy of the context: reports go to the flow run that the stage belongs to.
    watcher = threading.Thread(target=copy_context().run, args=(watch,), name=WATCHER, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
