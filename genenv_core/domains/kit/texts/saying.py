"""Finds whether a text says a part, such as a request that says its answer."""

from __future__ import annotations

import re

_BETWEEN_WORDS = re.compile(r"[\W_]+")
_NUMBER = re.compile(r"(?<![\w.])-?(\d{1,3}(,\d{3})+|\d{1,300})(\.\d+)?(?![\w]|[.,]\d)")


def holds(text: str, part: str) -> bool:
    """Return whether a text says a part as whole words: 14 does not give 4 away.

    It compares numbers by value: 1,000 says 1000.0. In a part of several words, neither letter case
    nor punctuation counts. In a single word they do, as the task may ask for that spelling.
    """
    if (number := _NUMBER.fullmatch(part.strip())) is not None:
        return any(_value(one) == _value(number) for one in _NUMBER.finditer(text))
    before, after = (r"\b" if edge.isalnum() else "" for edge in (part[:1], part[-1:]))
    # Compiling a pattern of each part, anew for each task, would take a quarter of the time.
    if part and part in text and re.search(before + re.escape(part) + after, text):
        return True
    words = _words(part)
    return len(words.split()) > 1 and words in _words(text)


def _words(text: str) -> str:
    return f" {_BETWEEN_WORDS.sub(' ', text.casefold()).strip()} "


def _value(number: re.Match[str]) -> float:
    return float(number[0].replace(",", ""))
