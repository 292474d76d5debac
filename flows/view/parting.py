"""Compares an attempt with the expected answer, and marks in both where they first differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from genenv_core.play.transcript import ToolCall, Turn, turns
from genenv_core.report.folding import folded
from genenv_core.types import Message

TOKEN = re.compile(r"\w+|[^\w\s]")
"""Matches a word or a sign: a mark never begins inside of one."""

SHORT_ANSWER = 50
"""Most words of an expected text to look for inside of a longer answer."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A text or a call, cut where it begins to differ from the other side."""

    text: str
    is_call: bool = False
    marked: str = ""
    """The part from the difference on."""
    ends: bool = False
    """Whether this side ends here and the other one goes on."""


@dataclass(frozen=True, slots=True)
class SpokenTurn:
    """A turn as pages show it; `times` counts equal answers of tools in a row."""

    role: str
    name: str
    times: int
    earned: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class HeldAttempt:
    """An attempt beside the expected answer: the request, the turns after it, and the answer."""

    request: tuple[SpokenTurn, ...]
    said: tuple[SpokenTurn, ...]
    expected: tuple[Piece, ...]


Difference = tuple[int | None, int | None]
"""Where two texts begin to differ, in characters of each; None for the text that ends first."""


def shown_turns(spoken: Sequence[Turn]) -> tuple[SpokenTurn, ...]:
    """Return turns as pages show them, without a mark."""
    return tuple(
        SpokenTurn(
            turn.role, turn.name, times, turn.earned,
            tuple(Piece(str(part), isinstance(part, ToolCall)) for part in turn.parts),
        )
        for turn, times in folded(spoken)
    )  # fmt: skip


def held(messages: Sequence[Message], expected: str, *, failed: bool) -> HeldAttempt:
    """Return an attempt beside the expected answer; in a failed one, with marks where they differ.

    Where the answer has calls, it compares the calls of all turns in their order, else the last
    text of the agent. Raises nothing.
    """
    spoken = shown_turns(turns(messages))
    start = next((n for n, turn in enumerate(spoken) if turn.role == "assistant"), len(spoken))
    request, said = spoken[:start], spoken[start:]
    (answer,) = shown_turns(turns([{"role": "assistant", "content": expected}]))
    wanted = tuple(
        replace(piece, text=piece.text.strip()) for piece in answer.pieces if piece.text.strip()
    )
    if not failed or not wanted:
        return HeldAttempt(request, said, wanted)
    if any(piece.is_call for piece in wanted):
        return HeldAttempt(request, *_calls_apart(said, wanted))
    return HeldAttempt(request, *_texts_apart(said, wanted))


Place = tuple[int, int]
"""A turn's index, and the index of a piece in it."""

Sides = tuple[tuple[SpokenTurn, ...], tuple[Piece, ...]]


def _calls_apart(said: tuple[SpokenTurn, ...], wanted: tuple[Piece, ...]) -> Sides:
    """Return both sides, with marks at the first call that differs, is missing or is extra."""
    places = [place for place in _places(said) if _at(said, place).is_call]
    calls = [n for n, piece in enumerate(wanted) if piece.is_call]
    for place, n in zip(places, calls, strict=False):
        found = first_difference(wanted[n].text, _at(said, place).text)
        if found is not None:
            return _marked(said, place, found[1]), _cut(wanted, n, found[0])
    if len(places) > len(calls):
        return _marked(said, places[len(calls)], 0), _cut(wanted, None, None)
    if len(places) < len(calls):
        after = places[-1] if places else (-1, -1)
        rest = [place for place in _places(said) if place > after]  # a call that cannot be read
        began = rest[0] if rest else None
        return _marked(said, began, 0 if rest else None), _cut(wanted, calls[len(places)], 0)
    return said, wanted


def _texts_apart(said: tuple[SpokenTurn, ...], wanted: tuple[Piece, ...]) -> Sides:
    """Return both sides, with marks at the first word of the last answer that differs."""
    last = max((n for n, turn in enumerate(said) if turn.role == "assistant"), default=None)
    places = [place for place in _places(said) if place[0] == last and not _at(said, place).is_call]
    if not places:
        return _marked(said, None, None), _cut(wanted, 0, 0)
    found = first_difference(wanted[0].text, _at(said, places[-1]).text, within=True)
    if found is None:
        return said, wanted
    return _marked(said, places[-1], found[1]), _cut(wanted, 0, found[0])


def first_difference(expected: str, said: str, *, within: bool = False) -> Difference | None:
    """Return where two texts begin to differ, by words and signs; None where they do not.

    Args:
        expected: the right text.
        said: the agent's text.
        within: whether `expected` may stand anywhere in `said`, in any case; then the
            comparison begins where most of its words match.
    """
    ours, theirs = list(TOKEN.finditer(expected)), list(TOKEN.finditer(said))
    a, b = ([one[0].casefold() if within else one[0] for one in side] for side in (ours, theirs))
    starts = range(len(b)) if within and len(a) <= SHORT_ANSWER else ()
    common, begin = max(((_common(a, b[start:][: len(a)]), -start) for start in starts),
                        default=(_common(a, b), 0))  # fmt: skip
    mine, other = common, common - begin
    if mine == len(a) and (within or other == len(b)):
        return None
    return (
        ours[mine].start() if mine < len(a) else None,
        theirs[other].start() if other < len(b) else None,
    )


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """Return how many words two lists share before the first difference."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((n for n, (one, other) in pairs if one != other), min(len(a), len(b)))


def _places(said: Sequence[SpokenTurn]) -> list[Place]:
    """Return the places in which the agent says something."""
    return [
        (n, at)
        for n, turn in enumerate(said)
        if turn.role == "assistant"
        for at, piece in enumerate(turn.pieces)
        if piece.text.strip()
    ]


def _at(said: Sequence[SpokenTurn], place: Place) -> Piece:
    return said[place[0]].pieces[place[1]]


def _marked(
    said: tuple[SpokenTurn, ...], place: Place | None, start: int | None
) -> tuple[SpokenTurn, ...]:
    """Return the turns with a mark in one piece, or behind the agent's last words."""
    turn = place[0] if place else max(
        (n for n, one in enumerate(said) if one.role == "assistant"), default=None
    )  # fmt: skip
    if turn is None:
        return said
    pieces = _cut(said[turn].pieces, place[1] if place else None, start)
    return (*said[:turn], replace(said[turn], pieces=pieces), *said[turn + 1 :])


def _cut(pieces: tuple[Piece, ...], at: int | None, start: int | None) -> tuple[Piece, ...]:
    """Return the pieces with one of them cut at the mark; None marks that they end."""
    if at is None:
        return (*pieces, Piece("", ends=True))
    if start is None:
        return (*pieces[: at + 1], Piece("", ends=True), *pieces[at + 1 :])
    text = pieces[at].text
    cut = replace(pieces[at], text=text[:start], marked=text[start:])
    return (*pieces[:at], cut, *pieces[at + 1 :])
