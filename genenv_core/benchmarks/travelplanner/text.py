"""Reads a plan's texts: a place's name and city, and a trip's two ends.

The official evaluator reads them with patterns that take quadratic or cubic time on hostile texts.
These functions find the same in linear time.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache

UNREADABLE = ("-", "-")
"""Name and city of a text without a place; no city of the database has this name."""

_SPACE = re.compile(r"\s*")
_FROM = re.compile(r"from(?=\s)")
_TO = re.compile(r"to(?=\s)")


def without_state(city: str) -> str:
    """Return a city without the text in brackets after it: `Reno(Nevada)` is `Reno`."""
    opened = city.find("(")
    if opened < 0 or ")" not in city[opened:] or "\n" in city[:opened]:
        return city
    return city[:opened]


def name_and_city(text: str) -> tuple[str, str]:
    """Return the texts before and after the last comma, or UNREADABLE without both.

    Only the name's last line counts.
    """
    comma = text.rfind(",")
    if comma < 0 or comma == len(text) - 1:
        return UNREADABLE
    line = text.rfind("\n", 0, comma) + 1
    return text[line:comma].strip(), without_state(text[comma + 1 :].strip()).strip()


def _run(text: str, start: int) -> int:
    """Return where the whitespace that begins at `start` ends."""
    space = _SPACE.match(text, start)
    return space.end() if space else start


def _destinations(text: str) -> tuple[list[int], list[int], list[int]]:
    """Return the places of each ` to ` with its whitespace, of its `to`, and of the text after it.

    It skips a ` to ` without a text before the next comma. The lists are parallel: a text may have
    a million of them.
    """
    begins: list[int] = []
    words: list[int] = []
    afters: list[int] = []
    for word in _TO.finditer(text):
        begin = word.start()
        if not text[begin - 1 : begin].isspace():
            continue
        while begin and text[begin - 1].isspace():
            begin -= 1
        after = _run(text, word.end())
        if after == len(text) or text[after] == ",":
            # Whitespace alone follows; its last character counts as a destination if another
            # one separates it from `to`.
            after -= 1
            if after == word.end():
                continue
        begins.append(begin)
        words.append(word.start())
        afters.append(after)
    return begins, words, afters


def _up_to_comma(text: str, start: int) -> str:
    comma = text.find(",", start)
    return text[start:] if comma < 0 else text[start:comma]


@lru_cache(maxsize=32)  # a plan's constraints read the same texts
def from_to(text: str) -> tuple[str, str] | None:
    """Return A and B of the first `from A to B`, None without one.

    A has no line break and is as short as possible; B ends at a comma or with the text.
    """
    if "from" not in text:
        return None
    begins, words, afters = _destinations(text)
    line = -1
    for word in _FROM.finditer(text) if words else ():
        start = _run(text, word.end())
        if line < start:
            line = text.find("\n", start)
            line = len(text) if line < 0 else line
        index = bisect_right(words, start + 1)
        if index < len(words):
            end = max(begins[index], start + 1)
            if line >= end:
                return text[start:end], _up_to_comma(text, afters[index])
        # `from   to B` leaves A a space when the whitespace is wide enough.
        index = bisect_right(words, start) - 1
        if index >= 0 and words[index] == start:
            for place in range(start - 2, word.end(), -1):
                if text[place] != "\n":
                    return text[place], _up_to_comma(text, afters[index])
    return None
