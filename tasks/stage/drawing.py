"""Finds the number of the draw of a stage in a run."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from contextvars import ContextVar

from genenv_core.config.load import run_name
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import DRAWN
from genenv_core.storage.records.draws import Draws, read_draws
from tasks.stage.stores import artifacts_of

_supposed: ContextVar[Draws | None] = ContextVar("draws", default=None)


@contextlib.contextmanager
def supposing(draws: Draws | None) -> Generator[None]:
    """Use these draws as the run's inside the block, for a plan; None: the recorded ones."""
    token = _supposed.set(draws)
    try:
        yield
    finally:
        _supposed.reset(token)


def draw_of(config: RunConfig, stage: str, epoch: int) -> int:
    """Return the number of the draw of a stage in a run; raises IntegrityError for damage."""
    if stage not in DRAWN:
        return 0
    draws = _supposed.get()
    if draws is None:
        run = config.run_id or run_name(config, "run")
        draws = read_draws(artifacts_of(config.root).store, run)
    return draws.number(stage, epoch)
