"""ROUGE-L as the package `rouge` 1.0.1 computes it (summary level, Lin 2004).

It departs from the paper: words count once, however often they occur, on both sides and among the
common ones. Sentences end at a full stop. The common words are those of a longest common
subsequence of each pair of sentences.
"""

from __future__ import annotations

from collections.abc import Sequence

LONGEST = 100_000
"""Most characters of a response; a longer one scores 0. Gold has a few hundred."""

_SMOOTHING = 1e-8


def rouge_l(said: str, gold: str) -> float:
    """Return the F-measure in [0, 1]; 0 where either side has no sentence, or said is too long."""
    ours, theirs = _sentences(said), _sentences(gold)
    if not ours or not theirs or len(said) > LONGEST:
        return 0.0
    common: set[str] = set()
    for reference in theirs:
        for sentence in ours:
            common |= _common_words(reference, sentence)
    precision = len(common) / len({word for words in ours for word in words})
    recall = len(common) / len({word for words in theirs for word in words})
    return 2.0 * (precision * recall) / (precision + recall + _SMOOTHING)


def _sentences(text: str) -> list[list[str]]:
    """Return the words of each sentence; one of spaces only has the empty word."""
    return [" ".join(part.split()).split(" ") for part in text.split(".") if part]


def _common_words(reference: Sequence[str], sentence: Sequence[str]) -> set[str]:
    """Return the words of one longest common subsequence, the one that the package takes."""
    known = set(reference)
    # A word that the reference lacks changes neither the lengths nor the path through them.
    kept = [word for word in sentence if word in known]
    lengths = [[0] * (len(kept) + 1)]
    for word in reference:
        above, row = lengths[-1], [0]
        for column, other in enumerate(kept):
            same = word == other
            row.append(above[column] + 1 if same else max(above[column + 1], row[column]))
        lengths.append(row)
    found: set[str] = set()
    row, column = len(reference), len(kept)
    while row and column:
        if reference[row - 1] == kept[column - 1]:
            found.add(reference[row - 1])
            row, column = row - 1, column - 1
        elif lengths[row - 1][column] > lengths[row][column - 1]:
            row -= 1
        else:
            column -= 1
    return found
