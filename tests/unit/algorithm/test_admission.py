"""Which tasks are new.

Invariants: a task that nobody has seen is new; the held-out set is checked first, so that nothing
leaks from it, then this epoch, then earlier ones; each has its own reason, with a short detail.
"""

from __future__ import annotations

from typing import Any

import pytest

from genenv_core.algorithm.admission import known
from genenv_core.types import Rejected, Rejection, TaskDraft
from tests.mutations import mutation

ADMISSION = "genenv_core/algorithm/admission.py"

TASK = TaskDraft("3 bolts and 4 more?", {}, "7", "3 + 4", "f", 1.0, "3 + 4")
SEEN = {"3 + 4"}
REASONS = {
    "heldout": Rejection.IN_HELDOUT,
    "batch": Rejection.DUPLICATE,
    "history": Rejection.DUPLICATE_OF_HISTORY,
}


def reason(*places: str) -> Rejection | None:
    sets: dict[str, Any] = {place: SEEN if place in places else {"1 + 1"} for place in REASONS}
    found = known(TASK, **sets)
    return found.reason if found else None


def test_a_task_that_nobody_has_seen_is_new() -> None:
    assert reason() is None


@mutation(
    "a duplicate of the batch is a task", ADMISSION,
    "(batch, Rejection.DUPLICATE),", "((), Rejection.DUPLICATE),",
)  # fmt: skip
@mutation(
    "a held-out task is trained on", ADMISSION,
    "(heldout, Rejection.IN_HELDOUT),", "((), Rejection.IN_HELDOUT),",
)  # fmt: skip
@pytest.mark.parametrize("place", REASONS)
def test_each_place_has_its_reason(place: str) -> None:
    assert reason(place) is REASONS[place]


def test_heldout_is_named_before_this_epoch_and_that_before_earlier_ones() -> None:
    assert reason(*REASONS) is Rejection.IN_HELDOUT
    assert reason("batch", "history") is Rejection.DUPLICATE


def test_details_are_short() -> None:
    long = TaskDraft("", {}, "", "+ " * 500, "f", 1.0, "3 + 4")
    found = known(long, batch=SEEN, history=(), heldout=())
    assert isinstance(found, Rejected)
    assert 0 < len(found.detail) <= 100
