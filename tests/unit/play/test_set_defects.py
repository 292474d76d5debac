"""Defects planted in sets of tasks, by seed.

Invariants: of 1,000 defects of 34 kinds in three sets of tasks each is found in its task, and named
by a flaw of its kind; the 1,000 sound tasks beside them have no flaw; an environment that ignores
its seed is named where it says that it uses it, and nowhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from genenv_core.domains.trails import TrailsDomain
from genenv_core.play.checking.set_flaws import AnyFlaw, SetFlaw
from genenv_core.play.checking.sets import SetTask, certified, compared, unchecked
from genenv_core.types import Message, Observation, TaskDraft
from tests.examples import some
from tests.mutations import mutation
from tests.unit.play.defects import playing, sound, with_methods
from tests.unit.play.set_defects import (
    IN_SETS,
    KINDS,
    SetKind,
    any_number,
    planted_sets,
)

PROBING = "genenv_core/play/checking/probing.py"
COMPARING = "genenv_core/play/checking/comparing.py"
SETS = "genenv_core/play/checking/sets.py"
CLOCK = "genenv_core/play/checking/clock.py"

COUNTS = {"desk": 340, "trails": 340, "arithmetic": 320}
QUICK = 34


def named(domain: Any, tasks: Sequence[SetTask]) -> list[set[AnyFlaw]]:
    """Return the flaws that are named for each task."""
    found = list(certified(domain, tasks))
    whole = dict(compared(domain, found))
    return [
        {check.flaw for check in whole[place].checks if not check.passed}
        for place in range(len(tasks))
    ]


def test_there_are_a_thousand_defects_of_many_kinds() -> None:
    assert sum(COUNTS.values()) == 1000
    assert {name: len(kinds) for name, kinds in KINDS.items()} == {
        "desk": 34, "trails": 34, "arithmetic": 27,
    }  # fmt: skip
    assert {flaw for kind in IN_SETS for flaw in kind.flaws} == {*SetFlaw} - {SetFlaw.IGNORES_SEED}


@mutation(
    "a reward may be any number", PROBING,
    "if wrong := wrong_verdict(verdict):", "if wrong := wrong_verdict(Verdict(1.0, True)):",
)  # fmt: skip
@mutation(
    "who says nothing may pass", PROBING, 'IDLE = [""] * IDLE_TURNS', 'IDLE = ["no"] * IDLE_TURNS'
)
@mutation(
    "what never began may pass", PROBING,
    "if unattempted.success else", "if unattempted.wrong and unattempted.success else",
)  # fmt: skip
@mutation(
    "tools may say something else again", PROBING,
    "if before.heard != after.heard:", "if len(before.heard) != len(after.heard):",
)  # fmt: skip
@mutation(
    "tasks come in one order alone", SETS,
    "for place in [*places[-2::-1], *places[-1:]]:", "for place in places:",
)  # fmt: skip
@mutation(
    "the last task comes after itself", SETS,
    "for place in [*places[-2::-1], *places[-1:]]:", "for place in places[::-1]:",
)  # fmt: skip
@mutation("no clock is ahead", COMPARING, "        with clock():", "        if clock:")
@mutation(
    "a class of the time keeps its true clock", CLOCK,
    "(_DATETIME, LaterDatetime), (_DATE, LaterDate),", "(_DATE, LaterDate),",
)  # fmt: skip
@mutation("the month goes on", CLOCK, "_STRFTIME(form, *(at or [_later_local()]))",
          "_STRFTIME(form, *at)")  # fmt: skip
@mutation(
    "a task may contradict another one", COMPARING,
    "contradiction = contradiction or (", "contradiction = contradiction and (",
)  # fmt: skip
@mutation(
    "tools never tell tasks apart", COMPARING,
    "if not there.success or there.heard != here.heard:", "if not there.success:",
)  # fmt: skip
@mutation(
    "tasks that only look alike are twins", COMPARING,
    "elif other.spec == draft.spec or not tools_of(domain, draft):", "else:",
)  # fmt: skip
@pytest.mark.parametrize("count", some((QUICK, 1000), (QUICK,)))
@pytest.mark.parametrize("name", COUNTS)
def test_defects_in_sets_are_found_and_named_and_nothing_else(name: str, count: int) -> None:
    planted, missed = Counter[str](), Counter[str]()
    refused: list[tuple[str, set[AnyFlaw]]] = []
    for made in planted_sets(name, min(count, COUNTS[name]), seed=0):
        for place, found in enumerate(named(made.domain, made.tasks)):
            kind = made.kinds.get(place)
            if kind:
                planted[kind.name] += 1
                missed[kind.name] += not kind.flaws & found
            elif found:
                refused.append((made.tasks[place].draft.prompt, found))
    assert len(planted) == len(KINDS[name])
    assert not +missed and not refused, (missed, refused)


MOODS = ("calm", "brisk", "sunny", "foggy", "mild", "stormy", "bright", "dull", "crisp", "warm")


def with_seeds(*, used: bool) -> Any:
    """Return trails whose episodes depend on the seed, as they say, or not."""

    def step(inner: Any, action: str, draft: TaskDraft, seed: int) -> Observation:
        seen = inner.step(action)
        mood = MOODS[seed if used else 0]
        told: Message = {"role": "tool", "content": f"I feel {mood}."}
        return seen if seen.done else Observation((*seen.messages, told), done=False)

    return with_methods(playing(TrailsDomain(), step), depends_on_seed=True)


@mutation(
    "all seeds are one", PROBING,
    "(played(draft, domain, turns, seed).heard, played(draft, domain, IDLE, seed).heard)",
    "(played(draft, domain, turns).heard, played(draft, domain, IDLE).heard)",
)  # fmt: skip
def test_a_seed_that_is_ignored_is_named_where_the_domain_says_that_it_counts() -> None:
    tasks = [SetTask("base", draft) for draft in sound(TrailsDomain(), 0, 6)]
    assert named(with_seeds(used=False), tasks) == [{SetFlaw.IGNORES_SEED}] * 6
    assert named(with_seeds(used=True), tasks) == [set()] * 6
    found = list(certified(TrailsDomain(), tasks))
    assert SetFlaw.IGNORES_SEED not in {check.flaw for one in found for check in one.checks}
    missing = {flaw for flaws in unchecked(TrailsDomain(), found).values() for flaw in flaws}
    assert SetFlaw.IGNORES_SEED not in missing


def test_playing_does_not_find_a_judge_that_accepts_near_misses() -> None:
    """Nobody knows which wrong answers to try, as docs/domain.md says."""
    kind = SetKind("any_number", any_number, frozenset())
    for made in planted_sets("arithmetic", 10, 0, [kind]):
        assert named(made.domain, made.tasks) == [set()] * 20


def test_a_set_may_be_empty_or_have_one_task() -> None:
    tasks = [SetTask("base", draft) for draft in sound(TrailsDomain(), 0, 1)]
    assert named(TrailsDomain(), tasks[:0]) == []
    assert named(TrailsDomain(), tasks) == [set()] * len(tasks)
