"""Reads how far a run's warm starts and first models came, and how far its stages at work are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from genenv_core.config.stages import FIRST, LAST, WARM
from genenv_core.epoch.reached import reached_lines
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.leases import doing
from genenv_core.storage.store.protocol import Store
from schemas.enums import StageState


def reached(store: Store, run: str) -> list[str]:
    """Return lines on how far warm starts and first models came, as far as the run has got."""
    log, artifacts = RunLog(store, run), Artifacts(store)

    def facts(stage: str, epoch: int) -> Mapping[str, Any]:
        key = log.keys(epoch).get(stage)
        manifest = artifacts.find(stage, key) if key else None
        return manifest.facts if manifest else {}

    measured, first = (facts(LAST, epoch).get("summary", {}) for epoch in (0, 1))
    return reached_lines(facts(WARM, 0) or facts(FIRST, 0), measured, first)


def progress_of(
    store: Store, stage_runs: Sequence[Mapping[str, Any]]
) -> dict[tuple[int, str], str]:
    """Return how far each running attempt of these rows is, by epoch and stage, where it is known.

    A process stores that at each beat of its lease, so it may be 12 s old.
    """
    running = [row for row in stage_runs if row["state"] == StageState.RUNNING]
    said = {
        (row["epoch"], row["stage"]): doing(store, row["stage"], row["stage_key"])
        for row in running
    }
    return {one: words for one, words in said.items() if words}
