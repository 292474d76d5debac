"""An epoch that teaches nothing: what is said of it, and when it stops the run.

Invariants: one epoch of a trouble is told, two in a row stop the run, two different ones do not; an
epoch is broken only when every attempt ended in an error, one with half of them is told; the
commonest error is named. Nearly all attempts cut off at a bound are a warning, and so is an epoch
whose tasks are nearly all of one family, or mostly repeats; they stop nothing.
"""

from __future__ import annotations

import polars as pl
import pytest

from genenv_core.config.sections.rollout import RolloutConfig
from genenv_core.epoch.rows import frame
from genenv_core.epoch.trouble import (
    BREAKING,
    BROKEN,
    ENDLESS,
    NARROW,
    NO_TASK,
    broken_attempts,
    check_epoch,
    endless_attempts,
    errors_of,
    narrow_tasks,
    troubles,
)
from genenv_core.errors import StageError
from tests.mutations import mutation
from tests.unit.epoch.builders_epoch import data, generated

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
    "errors of other turns are other errors", TROUBLE,
    "Counter(map(reason, broken", "Counter(map(str, broken",
)  # fmt: skip
def test_errors_that_differ_in_their_place_count_together() -> None:
    places = ["a; in step, turn 2 of task x, on 1", "a; in step, turn 1 of task y, on 2", "b"]
    assert errors_of(traces(*places, ""), 2) == (
        "epoch 2: 3 of 4 attempts ended in an error, 2 of them: 'a; in step, turn 2 of task x, on "
        "1', for example t0 (`genenv trace t0`)"
    )
    assert errors_of(traces("", ""), 2) == errors_of(traces(), 2) == ""


@mutation(
    "one attempt that ended well hides nothing", TROUBLE,
    "BROKEN if broken == traces.height else BREAKING", "BROKEN",
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
    "BREAKING, ENDLESS, NARROW, SHORT)", "BREAKING, NARROW, SHORT)",
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


def narrow(words: list[str], *, refused: int = 0, base: tuple[str, ...] = ("a", "bb")) -> str:
    """Return what is said of an epoch with these words as tasks; a word's family is its length."""
    rows = [generated(f"t{place:02d}", word) for place, word in enumerate(words)]
    again = [generated(f"u{place:02d}", "a", rejection="duplicate") for place in range(refused)]
    return narrow_tasks(frame("tasks", [*rows, *again]), data(base), 6).get(NARROW, "")


MANY = [f"{place:04d}" for place in range(20)]  # twenty different words of one family


@mutation(
    "a domain of one family is always narrow", TROUBLE,
    ' and base["family"].n_unique() > 1', "",
)  # fmt: skip
@mutation("a tenth of others is enough", TROUBLE, "ONE_FAMILY = 0.9", "ONE_FAMILY = 0.95")
def test_an_epoch_of_one_family_is_told_where_the_domain_has_several() -> None:
    said = "epoch 6: 18 of 20 attempted tasks are of the family k4: pi_env writes little else"
    assert narrow([*MANY[:18], "a", "b"]) == said
    assert troubles({NARROW: said}) == [said]
    assert narrow([*MANY[:17], "a", "b", "c"]) == ""
    assert narrow(MANY, base=("a", "b")) == ""
    assert narrow(MANY[:9]) == ""  # too few to say
    check_epoch({NARROW: said}, [{NARROW: said}])


@mutation("repeats are never told", TROUBLE, "if tried.height - different >=", "if 0 >")
def test_requests_with_the_words_of_others_are_told() -> None:
    others = [*MANY[:5], *"abcde"]
    assert narrow(["Ana, Mon", *["ana mon!"] * 15, *others[:4]]) == (
        "epoch 6: the 20 attempted tasks have 5 different requests: pi_env writes little else"
    )
    assert narrow(["Ana, Mon", *["ana mon!"] * 14, *others[:5]]) == ""


@mutation("no word is told", TROUBLE, "MORE_OFTEN = 0.5, 4.0", "MORE_OFTEN = 0.5, 7.0")
@mutation(
    "a word as frequent as in base tasks is told", TROUBLE,
    "MORE_OFTEN = 0.5, 4.0", "MORE_OFTEN = 0.5, 1.0",
)  # fmt: skip
@mutation(
    "a word of few tasks is told", TROUBLE,
    "SAME_WORD, MORE_OFTEN = 0.5", "SAME_WORD, MORE_OFTEN = 0.1",
)  # fmt: skip
def test_a_word_that_crowds_out_others_is_told() -> None:
    items = ("nuts", "bolts", "pipes", "lamps", "gears")
    usual = [f"{place} {items[place % 5]} in stock" for place in range(20)]
    # Of 80 words nuts are 24, and 4 in the base: 6 times.
    crowded = [f"{place} nuts, {place} nuts" for place in range(12)]
    others = [f"{place} lamps in stock" for place in range(12, 20)]
    assert narrow([*crowded, *others], base=tuple(usual)) == (
        "epoch 6: 12 of 20 attempted tasks have the word 'nuts', 6 times as frequent as in base "
        "tasks: pi_env writes little else"
    )
    assert narrow(usual, base=tuple(usual)) == ""
    few = [f"{place} nuts nuts nuts nuts nuts" for place in range(4)]
    assert narrow([*few, *others, *usual[:8]], base=tuple(usual)) == ""


@mutation(
    "duplicates are not told", TROUBLE, "if again >= REPEATS * tasks.height:", "if again < 0:"
)
def test_texts_that_were_there_before_are_told() -> None:
    mixed = [*MANY[:5], *"abcde"]
    assert narrow(mixed, refused=10) == (
        "epoch 6: 10 of 20 texts of pi_env are tasks that were there before: pi_env writes little "
        "else"
    )
    assert narrow(mixed, refused=9) == ""
