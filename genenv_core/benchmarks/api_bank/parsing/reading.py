"""Reads arguments in full, with lists and records, quoted or not.

The data record lists as strings: `attendees='['John', 'Jane']'`. The official harness stops at the
second quote there. This reading is only for calls with such an argument.
"""

from __future__ import annotations

import re
from typing import Any

DEEPEST = 20
"""Most levels of lists in lists; recorded arguments have two."""

_KEY = re.compile(r"\s*+(\w++)\s*+=\s*+")
_BARE = re.compile(r"[\w.+-]++")
_SPACE = re.compile(r"\s*+")
_STRINGS = {
    "'": re.compile(r"'((?:[^'\\]|\\.)*+)'", re.S),
    '"': re.compile(r'"((?:[^"\\]|\\.)*+)"', re.S),
}
_ESCAPED = re.compile(r"""\\(['"\\])""")
_WORDS: dict[str, Any] = {
    "True": True,
    "true": True,
    "False": False,
    "false": False,
    "None": None,
    "null": None,
}
_CLOSING = {"[": "]", "{": "}"}


class UnreadableError(ValueError):
    """The text is no list of arguments."""


def full_arguments(inside: str) -> dict[str, Any]:
    """Return the arguments up to the end or the closing parenthesis; raises UnreadableError.

    A value at the top is a list or a record, in quotes or not, or a text, quoted or bare.
    """
    reader = _ValueReader(inside)
    found: dict[str, Any] = {}
    while key := _KEY.match(inside, reader.place):
        if key[1] in found:
            raise UnreadableError(f"{key[1]} is given twice")
        reader.place = key.end()
        found[key[1]] = reader.argument()
        if not reader.skip(","):
            break
    reader.end()
    return found


def read_list(text: str) -> list[Any]:
    """Return the list in a text, written as in JSON or Python; raises UnreadableError."""
    reader = _ValueReader(text)
    found = reader.value(0)
    if not isinstance(found, list) or reader.rest():
        raise UnreadableError("no list")
    return found  # pyright: ignore[reportUnknownVariableType]


class _ValueReader:
    """Reads values from left to right, each character a bounded number of times."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.place = 0

    def rest(self) -> str:
        self._space()
        return self._text[self.place :]

    def end(self) -> None:
        rest = self.rest()
        if rest and not (rest[0] == ")" and rest[1:].lstrip().startswith("]")):
            raise UnreadableError(f"no argument at {self.place}")

    def skip(self, mark: str) -> bool:
        """Return whether the mark is next, and pass it."""
        self._space()
        if self._text.startswith(mark, self.place):
            self.place += len(mark)
            return True
        return False

    def argument(self) -> Any:
        quote = self._next()
        if quote in _STRINGS and self._text[self.place + 1 : self.place + 2] in _CLOSING:
            self.place += 1
            found = self.value(0)
            if not self.skip(quote):
                raise UnreadableError("a list's quote is not closed")
            return found
        return self.value(0) if quote in _CLOSING or quote in _STRINGS else self._bare()

    def value(self, depth: int) -> Any:
        if depth > DEEPEST:
            raise UnreadableError("too deep")
        self._space()
        opening = self._next()
        if opening in _STRINGS:
            return self._string(opening)
        if opening == "[":
            return self._items(depth)
        if opening == "{":
            return self._record(depth)
        return _scalar(self._bare())

    def _items(self, depth: int) -> list[Any]:
        self.place += 1
        found: list[Any] = []
        while not self.skip("]"):
            found.append(self.value(depth + 1))
            if not self.skip(","):
                self._close("]")
                break
        return found

    def _record(self, depth: int) -> dict[str, Any]:
        self.place += 1
        found: dict[str, Any] = {}
        while not self.skip("}"):
            self._space()
            if self._next() not in _STRINGS:
                raise UnreadableError("a record's key is no string")
            key = self._string(self._next())
            self._close(":")
            found[key] = self.value(depth + 1)
            if not self.skip(","):
                self._close("}")
                break
        return found

    def _string(self, quote: str) -> str:
        found = _STRINGS[quote].match(self._text, self.place)
        if not found:
            raise UnreadableError("a string is not closed")
        self.place = found.end()
        return _ESCAPED.sub(r"\1", found[1])

    def _bare(self) -> str:
        found = _BARE.match(self._text, self.place)
        if not found:
            raise UnreadableError(f"no value at {self.place}")
        self.place = found.end()
        return found[0]

    def _close(self, mark: str) -> None:
        if not self.skip(mark):
            raise UnreadableError(f"no {mark} at {self.place}")

    def _space(self) -> None:
        found = _SPACE.match(self._text, self.place)
        self.place = found.end() if found else self.place

    def _next(self) -> str:
        return self._text[self.place : self.place + 1]


def _scalar(word: str) -> Any:
    if word in _WORDS:
        return _WORDS[word]
    for number in (int, float):
        try:
            return number(word)
        except ValueError:
            continue
    raise UnreadableError("a word without quotes")
