"""Finds whether a text says some words."""

from __future__ import annotations


def says(text: str, words: str) -> bool:
    r"""Return whether a text says them, with no letter, digit or _ beside them; case counts.

    It is `(?<!\w)words(?!\w)`, which would be compiled for each of them, in most of the time that
    a domain needs to draw its tasks.
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
