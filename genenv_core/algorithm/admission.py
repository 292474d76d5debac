"""Refuses tasks that are held out, that the epoch already has, or that earlier epochs had.

The certificate says whether a new task is sound: see `genenv_core.play.certificate`.
"""

from __future__ import annotations

from collections.abc import Collection

from genenv_core.types import Rejected, Rejection, TaskDraft

SHOWN = 80
"""Characters of a program that a rejection shows."""


def known(
    draft: TaskDraft,
    *,
    batch: Collection[str],
    history: Collection[str],
    heldout: Collection[str],
) -> Rejected | None:
    """Return why the task is not new, or None for a new one; the collections hold fingerprints."""
    for place, reason in (
        (heldout, Rejection.IN_HELDOUT),
        (batch, Rejection.DUPLICATE),
        (history, Rejection.DUPLICATE_OF_HISTORY),
    ):
        if draft.fingerprint in place:
            return Rejected(reason, draft.program[:SHOWN])
    return None
