"""Finds new tasks: no held-out one, no duplicate in the epoch or of earlier epochs.

Whether a new task is sound, its certificate says; see `genenv_core.play.certificate`.
"""

from __future__ import annotations

from collections.abc import Collection

from genenv_core.types import Rejected, Rejection, TaskDraft

SHOWN = 80
"""Characters of a program that are shown."""


def known(
    draft: TaskDraft,
    *,
    batch: Collection[str],
    history: Collection[str],
    heldout: Collection[str],
) -> Rejected | None:
    """Return why the task is not new, None when it is; the collections hold fingerprints."""
    for place, reason in (
        (heldout, Rejection.IN_HELDOUT),
        (batch, Rejection.DUPLICATE),
        (history, Rejection.DUPLICATE_OF_HISTORY),
    ):
        if draft.fingerprint in place:
            return Rejected(reason, draft.program[:SHOWN])
    return None
