"""Finds whether a text says some words."""

from __future__ import annotations


def says(text: str, words: str) -> bool:
    r"""Return whether a text has these words, with no letter, digit or _ beside them; case counts.

    The result is that of `(?<!\w)words(?!\w)`. Compiling such a pattern for each value would take
    most of the time in which a domain draws its tasks.
    """
    start = text.find(words)
    while start >= 0:
        end = start + len(words)
        if not (_of_word(text[start - 1 : start]) or _of_word(text[end : end + 1])):
            return True
        start = text.find(words, start + 1)
    return False


def _of_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"
