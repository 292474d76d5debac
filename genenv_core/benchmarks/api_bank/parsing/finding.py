"""Finds the call in a text, and reads its arguments as the official harness does.

The harness searches with backtracking patterns, which take quadratic time on hostile text. These
functions find the same in linear time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST = 1_000_000
"""Characters of a text to search for a call; recorded calls have a few hundred."""

_OPENING = re.compile(r"\[(\w++)\(")
# A match cannot begin inside a word, so the search visits each word once.
_KEY = re.compile(r"(?<!\w)(\w++)\s*+=\s*+")
_WORD = re.compile(r"\w+")
_QUOTED = re.compile(r"""['"](.[^'"\n]*)['"]""")


@dataclass(frozen=True, slots=True)
class FoundCall:
    """A call's name and the text between its parentheses; `text` is the whole call."""

    name: str
    inside: str
    text: str


def find_call(text: str) -> FoundCall | None:
    """Return the first `[Name(...)]` of a text, None without one.

    It stands on one line and reaches to the last `)]` of that line, whatever stands between.
    """
    for line in text[:LONGEST].split("\n"):
        end = line.rfind(")]")
        opening = _OPENING.search(line) if end >= 0 else None
        if opening and opening.end() <= end:
            inside = line[opening.end() : end]
            return FoundCall(opening[1], inside, line[opening.start() : end + 2])
    return None


def plain_arguments(inside: str) -> dict[str, str]:
    """Return the arguments as the harness reads them: every value is text.

    A value is in quotes and ends at the next quote of either kind, or runs from a bracket to the
    last one, or is a bare word. The function skips everything else. The last value of a name
    counts.
    """
    last_quote = max(inside.rfind("'"), inside.rfind('"'))
    last_bracket = inside.rfind("]")
    found: dict[str, str] = {}
    place = 0
    while key := _KEY.search(inside, place):
        place = key.end()
        value: re.Match[str] | None = None
        if inside[place : place + 1] in ("'", '"') and place < last_quote - 1:
            value = _QUOTED.match(inside, place)
        if value:
            found[key[1]], place = value[1], value.end()
        elif inside.startswith("[", place) and place < last_bracket:
            found[key[1]], place = inside[place : last_bracket + 1], last_bracket + 1
        elif word := _WORD.match(inside, place):
            found[key[1]], place = word[0], word.end()
    return found
