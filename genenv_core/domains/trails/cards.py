"""Trails through a card index: their compact spelling, the cards behind them, their English.

`mara boss friend town 417` starts at the card of mara, goes on to that of her boss and of that
person's friend, and asks for the friend's town. The number stands for an index of its own: the
cards follow from the whole program, and only visited people have one.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass

from genenv_core.ids import seed_from
from genenv_core.types import Rejected, Rejection

PEOPLE = (
    "ada", "ben", "cleo", "dan", "eva", "finn", "gwen", "hugo",
    "ivo", "june", "karl", "lena", "mara", "nils", "olga", "paul",
    "rosa", "sven", "tara", "ugo", "vera", "wim", "yara", "zeno",
)  # fmt: skip

LINKS = ("boss", "friend", "tutor")
"""Fields of a card with other people: a trail goes on from there."""

THINGS: Mapping[str, tuple[str, ...]] = {
    "town": ("riga", "oslo", "lima", "cork", "bern", "kobe", "perth", "turin", "quito", "accra"),
    "trade": ("baker", "tailor", "mason", "miller", "pilot", "nurse", "clerk", "potter", "smith",
              "diver"),
    "pet": ("cat", "dog", "owl", "hen", "goat", "carp", "mule", "newt", "toad", "wren"),
}  # fmt: skip
"""Fields of a card about its own person, with their possible values: a trail ends there."""

FIELDS = (*LINKS, *THINGS)

MOST_LOOKS = 10
MOST_INDEX = 999  # nines only: an index is in range by its digits

_DIGITS = len(str(MOST_INDEX))
_NUMBER = re.compile("0|[1-9][0-9]*")
_LINK = re.compile(r", go to the (\w+)")
_REQUEST = re.compile(r"start at (\w+)((?:, go to the \w+)*), and tell the (\w+)\.")

Card = Mapping[str, str]
"""Field -> value, for every field."""


@dataclass(frozen=True, slots=True)
class Trail:
    """Where to start, the fields to read in order, and the number of the index."""

    start: str
    fields: tuple[str, ...]
    index: int

    @property
    def looks(self) -> int:
        """Return how many cards the trail looks at."""
        return len(self.fields)

    @property
    def program(self) -> str:
        """Return the canonical spelling, which `parse_trail` reads back to an equal trail."""
        return " ".join([self.start, *self.fields, str(self.index)])

    @property
    def request(self) -> str:
        """Return the question in English, as the agent reads it."""
        *links, last = self.fields
        on = "".join(f", go to the {link}" for link in links)
        return f"start at {self.start}{on}, and tell the {last}."


def parse_trail(text: str, *, max_looks: int) -> Trail | Rejected:
    """Return the trail that the text spells, or why it spells no trail; never raises.

    Spelling is judged first, then range, then sense, so each text has one reason.
    """
    start, *fields = text.split() or [""]
    number = fields.pop() if fields else ""
    if start not in PEOPLE:
        return Rejected(Rejection.UNPARSEABLE, f"unknown person {start[:40]!r}")
    if not _NUMBER.fullmatch(number):
        return Rejected(Rejection.UNPARSEABLE, f"no number of an index at the end: {number[:40]!r}")
    unknown = [field for field in fields if field not in FIELDS]
    if unknown or not fields:
        return Rejected(Rejection.UNPARSEABLE, f"unknown field {(unknown or [''])[0][:40]!r}")
    if len(fields) > max_looks:
        return Rejected(Rejection.OUT_OF_RANGE, f"{len(fields)} looks, at most {max_looks}")
    if len(number) > _DIGITS:
        return Rejected(Rejection.OUT_OF_RANGE, f"index {number[:20]} is above {MOST_INDEX}")
    *links, last = fields
    wrong = [link for link in links if link not in LINKS]
    if wrong:
        return Rejected(Rejection.INCONSISTENT, f"a trail does not go on from a {wrong[0]}")
    if last in LINKS:
        return Rejected(Rejection.INCONSISTENT, f"a trail does not end with a {last}")
    return Trail(start, tuple(fields), int(number))


def parse_request(text: str) -> str | None:
    """Return start and fields, with blanks between, of a `Trail.request`; None for another text."""
    found = _REQUEST.fullmatch(text)
    if found is None:
        return None
    start, links, last = found.groups()
    return " ".join([start, *_LINK.findall(links), last])


def trail_pattern(*, max_looks: int) -> str:
    """Return a regular expression for every canonical spelling within this bound."""
    people, links, things = ("|".join(names) for names in (PEOPLE, LINKS, THINGS))
    index = f"(0|[1-9][0-9]{{0,{_DIGITS - 1}}})"
    return f"({people})( ({links})){{0,{max_looks - 1}}} ({things}) {index}"


def draw_trail(rng: random.Random, looks: int) -> Trail:
    """Return a random trail of this many looks."""
    links = [rng.choice(LINKS) for _ in range(looks - 1)]
    fields = (*links, rng.choice(list(THINGS)))
    return Trail(rng.choice(PEOPLE), fields, rng.randint(0, MOST_INDEX))


def cards_of(trail: Trail) -> dict[str, Card]:
    """Return the cards of the visited people, in order of the visits; others have no card.

    Each card names other people and things, drawn from the program. A trail visits nobody twice.
    """
    rng = random.Random(seed_from("trails", "cards", trail.program))
    others = rng.sample([name for name in PEOPLE if name != trail.start], len(PEOPLE) - 1)
    visited = [trail.start, *others[: trail.looks - 1]]
    cards: dict[str, Card] = {}
    for person, field, following in zip(visited, trail.fields, [*visited[1:], ""], strict=True):
        named = rng.sample([name for name in others if name not in (person, following)], len(LINKS))
        card = dict(zip(LINKS, named, strict=True))
        card |= {thing: rng.choice(values) for thing, values in THINGS.items()}
        if following:
            card[field] = following
        cards[person] = card
    return cards
