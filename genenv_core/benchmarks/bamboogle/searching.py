"""Ranks passages of a local corpus by BM25 (Robertson and Zaragoza 2009, section 3.1).

The weight of a word is Lucene's, log(1 + (N - n + 0.5) / (n + 0.5)), which is never negative.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nsmallest
from pathlib import Path
from typing import Any, cast

from genenv_core.benchmarks.files import digest_of, read_lines
from genenv_core.errors import ConfigError, DataError

SATURATION, LENGTH_WEIGHT = 1.2, 0.75
"""k1 and b of the formula."""

SHOWN = 3
"""Passages that a search returns."""

LONGEST_SHOWN = 1500
"""Characters of one passage that a search shows."""

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Passage:
    """A title and its text in a corpus."""

    title: str
    text: str

    def shown(self) -> str:
        """Return the passage as a model reads it, on one line."""
        return f"{self.title}: {' '.join(self.text.split())[:LONGEST_SHOWN]}"


class Index:
    """Passages by their words; equal scores keep the corpus' order."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self._passages = list(passages)
        self._having: dict[str, list[tuple[int, int]]] = defaultdict(list)
        lengths: list[int] = []
        for place, passage in enumerate(self._passages):
            counts = Counter(_words(f"{passage.title} {passage.text}"))
            lengths.append(counts.total())
            for word, count in counts.items():
                self._having[word].append((place, count))
        mean = sum(lengths) / len(lengths) if lengths else 1.0
        self._damping = [
            SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * length / (mean or 1.0))
            for length in lengths
        ]

    def ranked(self, query: str, count: int = SHOWN) -> list[Passage]:
        """Return at most `count` passages that have a word of the query, the best first."""
        scores: dict[int, float] = defaultdict(float)
        for word in dict.fromkeys(_words(query)):
            having = self._having.get(word, [])
            rarity = (len(self._passages) - len(having) + 0.5) / (len(having) + 0.5)
            for place, times in having:
                gain = times * (SATURATION + 1) / (times + self._damping[place])
                scores[place] += math.log1p(rarity) * gain
        best = nsmallest(count, scores, key=lambda place: (-scores[place], place))
        return [self._passages[place] for place in best]

    def search(self, query: str) -> str:
        """Return the found passages as text, one a line; '' without any."""
        return "\n".join(passage.shown() for passage in self.ranked(query))


def read_corpus(path: Path) -> tuple[list[Passage], str]:
    """Return the passages of a corpus and its digest.

    A corpus is a JSONL file whose rows have `title` and `text`, or a folder of .txt files, whose
    names are the titles and whose paragraphs are the passages. Raises ConfigError for a missing
    path, DataError for a file of another form and for a corpus without passages.
    """
    if path.is_dir():
        files = sorted(path.glob("*.txt"))
        found = [Passage(file.stem, text) for file in files for text in _paragraphs(file)]
    elif path.is_file():
        files, found = [path], [_row(path, n, row) for n, row in enumerate(read_lines(path), 1)]
    else:
        raise ConfigError(f"domain.options.corpus {path}: there is no such file or folder")
    if not found:
        raise DataError(f"{path}: no passages; give a JSONL file, or a folder of .txt files")
    return found, digest_of(path if path.is_dir() else path.parent, files)


def _row(path: Path, number: int, row: Any) -> Passage:
    record = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
    title, text = record.get("title"), record.get("text")
    if not isinstance(title, str) or not isinstance(text, str):
        shown = str(cast(object, row))[:80]
        raise DataError(f"{path}, row {number}: wanted title and text, got {shown}")
    return Passage(title, text)


def _paragraphs(file: Path) -> list[str]:
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: no UTF-8: {error}; convert it") from error
    return [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
