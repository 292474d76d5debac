"""An epoch that teaches nothing: what is said of it, and when it stops the run.

Invariants: one epoch of a trouble is told, two in a row stop the run, two different ones do not; an
epoch is broken only when every attempt ended in an error, one with half of them is told; the
commonest error is named; nearly all attempts cut off at a bound are a warning, which stops nothing.
"""

from __future__ import annotations

import polars as pl
import pytest

from genenv_core.config.sections.rollout import RolloutConfig
from genenv_core.epoch.trouble import (
    BREAKING,
    BROKEN,
    ENDLESS,
    NO_TASK,
    broken_attempts,
    check_epoch,
    endless_attempts,
    troubles,
)
from genenv_core.errors import StageError
from tests.mutations import mutation

TROUBLE = "genenv_core/epoch/trouble.py"

NONE = {NO_TASK: "epoch 3 has no valid task: 6 rejected"}
ALL_BROKEN = {BROKEN: "epoch 3: all 8 attempts ended in an error"}


def traces(*errors: str) -> pl.DataFrame:
    names = [f"t{place}" for place in range(len(errors))]
    return pl.DataFrame(
        {"trace_id": names, "error": errors}, schema={"trace_id": str, "error": str}
    )


@mutation(
    "a run that learns nothing goes on", TROUBLE,
    "if name in now and any", "if name not in now and any",
)  # fmt: skip
@pytest.mark.parametrize(
    ("trouble", "remedy"), [(NONE, "change the domain's prompt"), (ALL_BROKEN, "mend the domain")]
)
def test_two_epochs_of_one_trouble_stop_the_run(trouble: dict[str, str], remedy: str) -> None:
    check_epoch(trouble, [])
    check_epoch(trouble, [{"valid": 1}])
    check_epoch({"valid": 1}, [trouble])
    with pytest.raises(StageError, match=rf"epoch 3.* the run stops: {remedy}"):
        check_epoch(trouble, [trouble])
    assert troubles({"valid": 1, **trouble}) == list(trouble.values())


def test_two_different_troubles_do_not_stop_it() -> None:
    check_epoch(NONE, [ALL_BROKEN])


def test_all_attempts_have_to_be_broken_to_stop_it() -> None:
    assert broken_attempts(traces(), 2) == {}
    assert broken_attempts(traces("no room", "no tool", "no tool"), 2) == {
        BROKEN: "epoch 2: all 3 attempts ended in an error, 2 of them: 'no tool', for example t1 "
        "(`genenv trace t1`)"
    }


@mutation(
    "one attempt that ended well hides nothing", TROUBLE,
    "    return {BREAKING if fine else BROKEN: said}\n", "    return {BROKEN: said}\n",
)  # fmt: skip
def test_half_of_them_are_told_and_stop_nothing() -> None:
    assert broken_attempts(traces("", "no tool", ""), 2) == {}
    told = broken_attempts(traces("", "no tool", "", "no room", "no tool", ""), 2)
    assert told == {
        BREAKING: "epoch 2: 3 of 6 attempts ended in an error, 2 of them: 'no tool', for example "
        "t1 (`genenv trace t1`)"
    }
    assert troubles(told) == list(told.values())
    check_epoch(told, [told])


@mutation(
    "attempts that all end at a bound are no warning", TROUBLE,
    "*TROUBLES, BREAKING, ENDLESS)", "*TROUBLES, BREAKING)",
)  # fmt: skip
@mutation("a few long attempts are a warning", TROUBLE, "NEARLY_ALL = 0.9", "NEARLY_ALL = 0.5")
def test_attempts_that_nearly_all_end_at_a_bound_are_a_warning() -> None:
    settings = RolloutConfig(max_tokens=32, max_turns=3, max_length=200)
    assert endless_attempts([], "epoch 2", settings) == {}
    assert endless_attempts(["length"] * 17 + ["stop"] * 3, "epoch 2", settings) == {}
    found = endless_attempts(["length"] * 18 + ["stop", "error"], "epoch 2", settings)
    said = found[ENDLESS]
    assert said.startswith("epoch 2: 18 of 20 attempts were cut off")
    assert "(max_tokens 32, max_turns 3, max_length 200)" in said and "doctor --model" in said
    assert troubles(found) == [said]
    check_epoch(found, [found])
