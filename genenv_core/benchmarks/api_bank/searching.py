"""Finds the documents of SearchEngine: BM25 as in the package `rank_bm25` (BM25Okapi).

A keyword is right when it finds the documents that the recorded one finds. The official tool cuts
a keyword into words with NLTK. This module cuts words at spaces and at most punctuation, which is
the same for keywords without contractions and quotes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SHOWN = 2
"""Documents that the tool returns."""

_SATURATION, _LENGTH_WEIGHT, _FLOOR = 1.5, 0.75, 0.25
"""k1, b and epsilon of BM25Okapi."""

_WORD = re.compile(r"\w++(?:[-./]\w++)*+|[^\w\s]")


class Search:
    """Ranks documents, each a list of words."""

    def __init__(self, documents: Sequence[Sequence[str]]) -> None:
        self._counts = [Counter(words) for words in documents]
        self._lengths = np.array([len(words) for words in documents], dtype=float)
        having = Counter(word for counts in self._counts for word in counts)
        total = len(documents)
        weights = {
            word: math.log(total - count + 0.5) - math.log(count + 0.5)
            for word, count in having.items()
        }
        floor = _FLOOR * sum(weights.values()) / len(weights) if weights else 0.0
        # A word of more than half of the documents would count against them.
        self._weights = {word: one if one >= 0 else floor for word, one in weights.items()}
        self._parts: dict[str, NDArray[np.float64]] = {}

    def found(self, keyword: str) -> frozenset[int]:
        """Return the places of the documents that a keyword finds."""
        scores = np.zeros(len(self._counts))
        for word in _WORD.findall(keyword.lower()):
            if word in self._weights:
                scores += self._part(word)
        # The official order of documents with one score is that of numpy's sort.
        return frozenset(int(place) for place in np.argsort(-scores)[:SHOWN])

    def _part(self, word: str) -> NDArray[np.float64]:
        """Return what a word adds to each document's score, shape (documents,)."""
        if word not in self._parts:
            counts = np.array([one[word] for one in self._counts], dtype=float)
            relative = self._lengths / self._lengths.mean()
            damping = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * relative)
            gain = counts * (_SATURATION + 1) / (counts + damping)
            self._parts[word] = self._weights[word] * gain
        return self._parts[word]
