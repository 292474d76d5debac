"""Sets of tasks in which defects are planted: each in one task, the others stay sound.

One domain plays a set, and looks up how each task is broken. The kinds of `defects` break one task
by itself; those here break what shows beside other tasks, at another time, or in no certificate.
"""

from __future__ import annotations

import datetime
import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date as day
from typing import Any

from pydantic import BaseModel

from genenv_core.domains.arithmetic import Arithmetic
from genenv_core.domains.protocol import Episode, tools_of
from genenv_core.play.checking.set_flaws import AnyFlaw, SetFlaw
from genenv_core.play.checking.sets import SetTask
from genenv_core.types import Flaw, Message, Observation, TaskDraft, Verdict
from tests.unit.play import defects
from tests.unit.play.defects import RIGHT, accepting, parts_of, playing, with_methods

Scoring = Callable[[TaskDraft, Sequence[Message]], Verdict]

WRONG = Verdict(0.0, False, "wrong")
OPTIONAL = ("solution", "answer_turns", "leaks")
MONTH_S = 30 * 86_400


class TestedSums(Arithmetic):
    """Arithmetic with many tasks, whose options may be given as it keeps them."""

    def __init__(self, options: Any = None) -> None:
        given = options.model_dump() if isinstance(options, BaseModel) else options
        super().__init__(given or {"terms": 6, "first": 99, "others": 99})


DOMAINS: dict[str, tuple[Any, ...]] = {**defects.DOMAINS, "arithmetic": (TestedSums(),)}


class MixedSet:
    """A domain whose tasks are broken one by one.

    `judged` are the tasks by their fingerprints, as they were judged, none twice in a row.
    """

    def __init__(self, domain: Any) -> None:
        self.name, self.version, self.tools = domain.name, domain.version, domain.tools
        self.sound = domain
        self.judged: list[str] = []
        self.broken: dict[str, Any] = {}
        for name in OPTIONAL:
            if hasattr(domain, name):
                setattr(self, name, self._by_task(name))

    def of(self, draft: TaskDraft) -> Any:
        return self.broken.get(draft.fingerprint, self.sound)

    def _by_task(self, name: str) -> Callable[[TaskDraft], Any]:
        return lambda draft: getattr(self.of(draft), name)(draft)

    def tools_of(self, draft: TaskDraft) -> Sequence[Any]:
        return tools_of(self.of(draft), draft)

    def agent_messages(self, draft: TaskDraft) -> list[Message]:
        return self.of(draft).agent_messages(draft)

    def trivial_answers(self, draft: TaskDraft) -> list[str]:
        return self.of(draft).trivial_answers(draft)

    def episode(self, draft: TaskDraft, seed: int) -> Episode:
        return self.of(draft).episode(draft, seed)

    def score(self, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        if self.judged[-1:] != [draft.fingerprint]:
            self.judged.append(draft.fingerprint)
        return self.of(draft).score(draft, messages)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a defect is planted: a sound task, the one before it, its set, and some chance."""

    draft: TaskDraft
    before: TaskDraft
    mixed: MixedSet
    rng: random.Random

    @property
    def domain(self) -> Any:
        return self.mixed.sound


Planted = tuple[TaskDraft, Any]
Planting = Callable[[Place], Planted]


def judging(place: Place, score: Callable[[Scoring, TaskDraft, Sequence[Message]], Any]) -> Planted:
    """Return the task with another judge, which gets the sound one."""
    inner = place.domain.score

    def judge(self: Any, draft: TaskDraft, messages: Sequence[Message]) -> Any:
        return score(inner, draft, messages)

    return place.draft, with_methods(place.domain, score=judge)


def said_in(messages: Sequence[Message]) -> list[str]:
    return [one["content"] for one in messages if one["role"] == "assistant"]


def too_much(place: Place) -> Planted:
    """A right answer earns 1.5."""

    def score(inner: Scoring, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        verdict = inner(draft, messages)
        return replace(verdict, reward=1.5) if verdict.success else verdict

    return judging(place, score)


def no_number(place: Place) -> Planted:
    """A wrong answer earns NaN."""

    def score(inner: Scoring, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        verdict = inner(draft, messages)
        return verdict if verdict.success else replace(verdict, reward=math.nan)

    return judging(place, score)


def raising(place: Place) -> Planted:
    """A judge that raises where an answer is wrong."""

    def score(inner: Scoring, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        verdict = inner(draft, messages)
        return verdict if verdict.success else {}[said_in(messages)[-1]]

    return judging(place, score)


def without_a_turn(place: Place) -> Planted:
    """An attempt that ended before its first turn passes."""
    return judging(
        place,
        lambda inner, draft, messages: inner(draft, messages) if said_in(messages) else RIGHT,
    )


def at_its_goal(place: Place) -> Planted:
    """Whoever changes nothing passes."""

    def score(inner: Scoring, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        said = said_in(messages)
        return inner(draft, messages) if not said or any(map(str.strip, said)) else RIGHT

    return judging(place, score)


def counting_tools(place: Place) -> Planted:
    """Tools that say how often they were asked, by whomever."""
    count = itertools.count()

    def step(inner: Episode, action: str, draft: TaskDraft, seed: int) -> Observation:
        seen = inner.step(action)
        told: Message = {"role": "tool", "content": f"(asked {'i' * next(count)})"}
        if seen.done and place.domain.name == "trails":
            return seen
        return replace(seen, messages=(told, *seen.messages))

    return place.draft, playing(place.domain, step)


def wearing_out(place: Place) -> Planted:
    """A judge that has had enough once some other tasks were judged."""
    first: list[int] = []

    def score(inner: Scoring, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        judged = len(place.mixed.judged)
        first.append(judged)
        return inner(draft, messages) if judged == first[0] else WRONG

    return judging(place, score)


def by_the_one_before(place: Place) -> Planted:
    """A judge that pays less after a task that it did not expect."""

    def score(inner: Scoring, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        verdict, expected = inner(draft, messages), place.before.fingerprint
        if expected in place.mixed.judged[-2:]:
            return verdict
        return replace(verdict, reward=verdict.reward / 2)

    return judging(place, score)


def until_a_date(place: Place) -> Planted:
    """A judge that accepts nothing from next month on."""
    last = time.time() + MONTH_S
    return judging(
        place,
        lambda inner, draft, messages: inner(draft, messages) if time.time() < last else WRONG,
    )


def this_year(place: Place) -> Planted:
    """A judge that asks for the year, by one or the other class."""
    year = datetime.datetime.now().year
    other = place.rng.random() < 0.5

    def score(inner: Scoring, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        now = day.today().year if other else datetime.datetime.now().year
        return inner(draft, messages) if now == year else WRONG

    return judging(place, score)


def tools_of_the_day(place: Place) -> Planted:
    """Tools that say what time it is."""

    def step(inner: Episode, action: str, draft: TaskDraft, seed: int) -> Observation:
        seen = inner.step(action)
        told: Message = {"role": "tool", "content": time.strftime("(%B %Y)")}
        if seen.done and place.domain.name == "trails":
            return seen
        return replace(seen, messages=(told, *seen.messages))

    return place.draft, playing(place.domain, step)


def contradiction(place: Place) -> Planted:
    """The task before it, with another answer."""
    before = place.before
    if place.domain.name == "arithmetic":
        made = replace(before, ground_truth=f"{before.ground_truth}0")
    else:
        made, _ = defects.wrong_answer(before, place.domain, place.rng)
    return replace(made, fingerprint=f"{before.fingerprint} otherwise"), place.domain


def same_again(place: Place) -> Planted:
    """The task before it."""
    return place.before, place.domain


def twin(place: Place) -> Planted:
    """The task before it, under another name."""
    return replace(place.before, fingerprint=f"{place.before.fingerprint} again"), place.domain


def wrong_sum(place: Place) -> Planted:
    """A sum whose ground truth is wrong."""
    right = int(place.draft.ground_truth)
    return replace(place.draft, ground_truth=str(right + place.rng.randint(1, 9))), place.domain


def any_number(place: Place) -> Planted:
    """A judge of sums that accepts every number."""
    return place.draft, accepting(place.domain, lambda said, draft: said.strip().isdigit())


@dataclass(frozen=True, slots=True)
class SetKind:
    """A kind of defect, and the flaws of which one at least has to be named."""

    name: str
    plant: Planting
    flaws: frozenset[AnyFlaw]
    tells: bool = False


def _kind(plant: Planting, *flaws: AnyFlaw) -> SetKind:
    return SetKind(plant.__name__, plant, frozenset(flaws))


def _of_one_task(kind: defects.Kind) -> SetKind:
    def plant(place: Place) -> Planted:
        return kind.break_(place.draft, place.domain, place.rng)

    # Eight tosses of a coin are equal once in 128 times; then attempts show what it is.
    tossed = [Flaw.AMBIGUOUS, SetFlaw.UNREPEATABLE] if kind.break_ is defects.a_coin else []
    return SetKind(kind.break_.__name__, plant, frozenset([kind.flaw, *tossed]), kind.tells)


IN_SETS = (
    _kind(too_much, SetFlaw.WRONG_VERDICT),
    _kind(no_number, SetFlaw.WRONG_VERDICT),
    _kind(raising, SetFlaw.WRONG_VERDICT),
    _kind(without_a_turn, SetFlaw.PASSES_UNATTEMPTED),
    _kind(at_its_goal, SetFlaw.ALREADY_SOLVED),
    _kind(counting_tools, SetFlaw.UNREPEATABLE),
    _kind(wearing_out, SetFlaw.DEPENDS_ON_ORDER),
    _kind(by_the_one_before, SetFlaw.DEPENDS_ON_ORDER),
    _kind(until_a_date, SetFlaw.DEPENDS_ON_TIME),
    _kind(this_year, SetFlaw.DEPENDS_ON_TIME),
    _kind(tools_of_the_day, SetFlaw.DEPENDS_ON_TIME),
    _kind(contradiction, SetFlaw.CONTRADICTS),
    _kind(same_again, SetFlaw.DUPLICATE),
    _kind(twin, SetFlaw.DUPLICATE),
)
"""Kinds that no certificate of one task looks for."""

_NOT_OF_SUMS = {"other_spec", "unknown_tool", "wrong_answer", "other_truth", "other_request"}
"""Kinds that need a spec, tools or wording of their own; a judge of sums reads the ground truth."""

KINDS: dict[str, tuple[SetKind, ...]] = {
    **dict.fromkeys(defects.DOMAINS, (*map(_of_one_task, defects.KINDS), *IN_SETS)),
    "arithmetic": (
        *(
            _of_one_task(kind)
            for kind in defects.KINDS
            if not kind.tells and kind.break_.__name__ not in _NOT_OF_SUMS
        ),
        _kind(wrong_sum, Flaw.UNREACHABLE),
        *IN_SETS,
    ),
}
"""The kinds of a domain; those that tell parts of an answer need tasks with parts."""


@dataclass(frozen=True, slots=True)
class PlantedSet:
    """A set in which every second task is broken; `kinds` has a kind by the task's place."""

    domain: Any
    tasks: list[SetTask]
    kinds: dict[int, SetKind]


def planted_sets(
    name: str, count: int, seed: int, kinds: Sequence[SetKind] = (), size: int = 50
) -> Iterator[PlantedSet]:
    """Yield sets with `count` broken tasks of a domain and as many sound ones, kinds in turn."""
    rng = random.Random(f"{name} {seed}")
    turn = itertools.cycle(kinds or KINDS[name])
    variants = itertools.cycle(DOMAINS[name])
    for begin in range(0, count, size):
        many = min(size, count - begin)
        mixed = MixedSet(next(variants))
        drafts = list(defects.sound(mixed.sound, rng.getrandbits(30), 4 * many))
        found = PlantedSet(mixed, [], {})
        for _ in range(many):
            kind, before = next(turn), drafts.pop(0)
            at = next(
                place
                for place, one in enumerate(drafts)
                if not kind.tells or parts_of(one, mixed.sound)
            )
            draft, domain = kind.plant(Place(drafts.pop(at), before, mixed, rng))
            if domain is not mixed.sound:
                mixed.broken[draft.fingerprint] = domain
            found.kinds[len(found.tasks) + 1] = kind
            found.tasks.extend(SetTask("base", one) for one in (before, draft))
        yield found
