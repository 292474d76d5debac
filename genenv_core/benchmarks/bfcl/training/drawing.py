"""Draws requests from the catalogue: how many calls, of which functions, among which others."""

from __future__ import annotations

import random
from collections.abc import Sequence

from genenv_core.benchmarks.bfcl.training.catalogue import CATALOGUE, CatalogueEntry
from genenv_core.benchmarks.bfcl.training.program import Program
from genenv_core.types import Call

MOST_CALLS = 4
"""Most calls of one drawn request."""

_LINKS = ("Also: ", "Besides that: ", "And then: ")


def draw_program(rng: random.Random, difficulty: int) -> Program:
    """Return a request of a difficulty: the calls, plus the functions that it does not call."""
    calls, called = rng.choice(_shapes(difficulty))
    return _drawn(rng, calls, called, difficulty - calls)


def _shapes(difficulty: int) -> Sequence[tuple[int, int]]:
    """Return pairs (calls, functions called) to draw from; at most a quarter call nothing."""
    if difficulty == 1:
        return [(0, 0), (1, 1), (1, 1), (1, 1)]
    most = min(difficulty, MOST_CALLS)
    shapes = [(0, 0), (1, 1), (2, 2), (most, 2)]
    return [*shapes, (difficulty, 1)] if difficulty == most else shapes


def _drawn(rng: random.Random, calls: int, called: int, others: int) -> Program:
    names = rng.sample(list(CATALOGUE), (called or 1) + others)
    wanted, offered = names[: called or 1], names[:called] + names[called or 1 :]
    if calls == 0:
        sentence, _ = CATALOGUE[wanted[0]].draw(rng)
        return Program(sentence, _functions(names[1:]), [])
    rng.shuffle(offered)
    sentences: list[str] = []
    found: list[Call] = []
    for name in [*wanted, *rng.choices(wanted, k=calls - called)]:
        sentence, call = _distinct(rng, CATALOGUE[name], found)
        sentences.append(sentence)
        found.append(call)
    return Program(_joined(rng, sentences), _functions(offered), found)


def _distinct(
    rng: random.Random, entry: CatalogueEntry, others: Sequence[Call]
) -> tuple[str, Call]:
    while True:
        sentence, arguments = entry.draw(rng)
        call = Call(entry.function["name"], arguments)
        if call not in others:
            return sentence, call


def _joined(rng: random.Random, sentences: Sequence[str]) -> str:
    return " ".join([sentences[0], *(f"{rng.choice(_LINKS)}{one}" for one in sentences[1:])])


def _functions(names: Sequence[str]) -> list[dict[str, object]]:
    return [CATALOGUE[name].function for name in names]
