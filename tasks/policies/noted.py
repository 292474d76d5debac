"""How far a training process is, from the file that grows by the loss of each of its steps."""

from __future__ import annotations

from pathlib import Path

from genenv_core.training.warm_start.request import noted_steps
from tasks.stage import StageContext
from tasks.stage.inputs import In

SHOWN_S = 1.0
"""Seconds between two reports."""


def show_steps(
    context: StageContext[In], noted: Path, planned: int | None, *, part: str = ""
) -> None:
    """Report the steps and the loss of a stage, or of the named part of it.

    `planned` is None at its end: one that ends before the last planned step is done.
    """
    done, loss = noted_steps(noted)
    message = "" if loss is None else f"loss {loss:.3f}"
    context.progress(done, planned or done, "steps", part=part, message=message)
