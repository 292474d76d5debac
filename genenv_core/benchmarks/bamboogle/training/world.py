"""Draws questions of two or three hops about people, towns and works that do not exist.

Syllables make the names, so no model knows the answers and no question repeats one of the
benchmark's. Each thing of the world has a passage; a hop leads from one passage to the next.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from genenv_core.benchmarks.bamboogle.searching import Passage
from genenv_core.benchmarks.training.invented import person, river, town, word

LEVELS: Sequence[tuple[int, int]] = ((2, 1), (2, 4), (3, 2), (3, 7))
"""Of levels 1, 2, ...: the hops of a question, and the passages that it does not need."""


@dataclass(frozen=True, slots=True)
class _Relation:
    """How one thing leads to another, as the question and the first thing's passage say it."""

    to: str
    asked: str
    told: str


@dataclass(frozen=True, slots=True)
class _Fact:
    """What a question asks of the last thing, and how that thing's passage says it."""

    asked: str
    told: str
    draw: Callable[[random.Random], str]


def _year(rng: random.Random) -> str:
    return str(rng.randint(1400, 1899))


def _one_of(*words: str) -> Callable[[random.Random], str]:
    return lambda rng: rng.choice(words)


_NAMES: dict[str, Callable[[random.Random], str]] = {
    "person": person,
    "town": town,
    "novel": lambda rng: f"The {rng.choice(('Bells', 'Keys', 'Lamps', 'Roads'))} of {town(rng)}",
    "opera": lambda rng: f"The {rng.choice(('Daughter', 'Ghost', 'Judge'))} of {town(rng)}",
    "company": lambda rng: f"{word(rng)} {rng.choice(('Ironworks', 'Shipyard', 'Press'))}",
    "building": lambda rng: f"{word(rng)} {rng.choice(('Tower', 'Bridge', 'Hall'))}",
}

_RELATIONS: dict[str, Sequence[_Relation]] = {
    "novel": [_Relation("person", "the author of {}", "{} is a novel by {}.")],
    "opera": [_Relation("person", "the composer of {}", "{} is an opera by {}.")],
    "company": [_Relation("person", "the founder of {}", "{} was founded by {}.")],
    "building": [
        _Relation("person", "the architect of {}", "{} was designed by {}."),
        _Relation("town", "the town where {} stands", "{} stands in {}."),
    ],
    "town": [_Relation("person", "the first mayor of {}", "The first mayor of {} was {}.")],
    "person": [
        _Relation("person", "the teacher of {}", "{} was a pupil of {}."),
        _Relation("town", "the town where {} was born", "{} was born in {}."),
    ],
}

_FACTS: dict[str, Sequence[_Fact]] = {
    "person": [
        _Fact("In what year did {} die?", "{} died in {}.", _year),
        _Fact("In what year did {} marry?", "{} married in {}.", _year),
        _Fact(
            "What was the profession of {}?",
            "{} worked as a {}.",
            _one_of("baker", "clockmaker", "doctor", "glazier", "judge", "miller", "painter"),
        ),
        _Fact(
            "Which instrument did {} play?",
            "{} played the {}.",
            _one_of("bassoon", "cello", "flute", "harp", "lute", "organ", "trumpet", "zither"),
        ),
    ],
    "town": [
        _Fact("In what year was {} founded?", "{} was founded in {}.", _year),
        _Fact("On which river lies {}?", "{} lies on the river {}.", river),
    ],
}


@dataclass(frozen=True, slots=True)
class Drawn:
    """A question, its answer, and passages in random order, some of which it does not need."""

    question: str
    answer: str
    passages: Sequence[Passage]


def draw(rng: random.Random, level: int) -> Drawn:
    """Return a question of a level from 1 to the number of `LEVELS`.

    The first passages that it does not need are those of a twin question about other things, the
    twin's last passage before its others. So the kind of the answer alone does not give it away.
    """
    hops, others = LEVELS[level - 1]
    used: set[str] = set()
    way = _way(rng, hops)
    chain = _chain(rng, way, used)
    idle = list(reversed(_chain(rng, way, used).passages))
    while len(idle) < others:
        idle += _chain(rng, _way(rng, hops), used).passages
    passages = [*chain.passages, *idle[:others]]
    rng.shuffle(passages)
    return Drawn(chain.question, chain.answer, passages)


@dataclass(frozen=True, slots=True)
class _QuestionWay:
    """The kind of thing that a question starts from, its relations, and what it asks."""

    start: str
    relations: Sequence[_Relation]
    fact: _Fact


def _way(rng: random.Random, hops: int) -> _QuestionWay:
    start = kind = rng.choice(list(_NAMES))
    relations: list[_Relation] = []
    for _ in range(hops - 1):
        relations.append(rng.choice(_RELATIONS[kind]))
        kind = relations[-1].to
    return _QuestionWay(start, relations, rng.choice(_FACTS[kind]))


def _chain(rng: random.Random, way: _QuestionWay, used: set[str]) -> Drawn:
    """Return a question with the passages that it needs, in the order of its hops."""
    thing = _new(rng, _NAMES[way.start], used)
    asked, passages = thing, list[Passage]()
    for relation in way.relations:
        following = _new(rng, _NAMES[relation.to], used)
        passages.append(Passage(thing, relation.told.format(thing, following)))
        asked, thing = relation.asked.format(asked), following
    answer = _new(rng, way.fact.draw, used)
    passages.append(Passage(thing, way.fact.told.format(thing, answer)))
    return Drawn(way.fact.asked.format(asked), answer, passages)


def _new(rng: random.Random, name: Callable[[random.Random], str], used: set[str]) -> str:
    """Return a name that the world does not have yet; trades and instruments may come again."""
    found = ""
    for _ in range(20):
        found = name(rng)
        if found not in used:
            break
    used.add(found)
    return found
