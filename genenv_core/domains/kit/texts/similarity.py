"""Soft similarity of free-form answers: token F1 after normalisation.

Source: Rajpurkar et al., SQuAD (arXiv 1606.05250, section 6.1) and its evaluation script: lower
case, no punctuation, no articles, blanks collapsed; then the F1 of the two bags of words.

Departures, both for answers that are not English prose: punctuation is any character of a Unicode
P or S category, not only ASCII's; text is first brought to Unicode form NFKC. Two answers that
are both empty after normalisation score 1.0; one empty answer scores 0.0.
"""

from __future__ import annotations

import unicodedata
from collections import Counter

_ARTICLES = frozenset({"a", "an", "the"})


class _Kept(dict[int, int | None]):
    """Maps each character to itself, or punctuation to None; looks each one up once."""

    def __missing__(self, code: int) -> int | None:
        mark = unicodedata.category(chr(code))[0] in "PS"
        self[code] = None if mark else code
        return self[code]


_KEPT = _Kept()


def normalize_answer(text: str) -> list[str]:
    """Return the words of an answer without articles and punctuation, in order."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return [word for word in folded.translate(_KEPT).split() if word not in _ARTICLES]


def token_f1(answer: str, reference: str) -> float:
    """Return the similarity of two answers in [0, 1]: symmetric, 1.0 for equal bags of words."""
    left, right = Counter(normalize_answer(answer)), Counter(normalize_answer(reference))
    if not left or not right:
        return float(left == right)
    # F1 = 2PR / (P + R) with P = shared / |left| and R = shared / |right|.
    return 2 * (left & right).total() / (left.total() + right.total())


def best_token_f1(answer: str, references: list[str]) -> float:
    """Return the similarity to the closest of several references; 0.0 when there are none."""
    return max((token_f1(answer, reference) for reference in references), default=0.0)
