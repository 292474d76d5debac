"""Finds who computed a reused output, by the note beside the manifest or the run's history."""

from __future__ import annotations

from typing import Any

from genenv_core.storage.records.origins import Origin, find_origin, note_origin
from genenv_core.storage.records.runs import RunLog, StageAttempt
from genenv_core.storage.store.protocol import Store
from schemas.enums import StageState


def found_origin(
    store: Store, run: RunLog, epoch: int, stage: str, key: str, *, first: bool
) -> Origin | None:
    """Return who computed a reused stage, None where that is unknown.

    A process may have died between its manifest and its note. When the run uses the stage for the
    `first` time, the function reads the history of the run, finds that process, and adds the note.
    """
    found = find_origin(store, stage, key)
    if found or not first:
        return found
    attempts = [
        attempt
        for attempt in run.attempts([epoch])
        if (attempt.stage, attempt.stage_key) == (stage, key)
        and attempt.state is not StageState.CACHED
    ]
    if attempts:
        found = origin_of(attempts[-1], attempts[-1].seconds)
        note_origin(store, found, replace=False)
    return found


def origin_of(attempt: StageAttempt, seconds: float | None) -> Origin:
    """Return an attempt as the origin of its stage's output."""
    return Origin(
        stage=attempt.stage,
        key=attempt.stage_key,
        run_id=attempt.run_id,
        host=attempt.host,
        started_at=attempt.started_at,
        seconds=seconds,
    )


def computed_then(origin: Origin | None) -> dict[str, Any]:
    """Return the fields of an attempt that say who computed the output that it reuses."""
    if origin is None:
        return {}
    return {
        "computed_by": origin.run_id,
        "computed_at": origin.started_at,
        "computed_seconds": origin.seconds,
        "computed_root": origin.root,
    }
