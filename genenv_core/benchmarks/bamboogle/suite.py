"""Bamboogle's items and verdicts."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from genenv_core.benchmarks.bamboogle.playing import BamboogleQuestion, Search
from genenv_core.benchmarks.bamboogle.scoring import judged
from genenv_core.benchmarks.files import digest_of, required
from genenv_core.benchmarks.protocol import AttemptLimits, Benchmark, Composite, ItemVerdict, Ratio
from genenv_core.errors import DataError

FILE = "test.csv"
COLUMNS = ["Question", "Answer"]
MODES = {
    "official": "the answer that the text marks, or all of it, equals gold after normalising",
    "strict": "the text as a whole equals gold after normalising",
    "lenient": "as official; where a spreadsheet turned gold into a date, the same day counts",
}


class Bamboogle:
    """The questions and gold answers of one download; ids are rows from 0."""

    composites: Sequence[Composite] = ()

    def __init__(self, rows: Sequence[tuple[str, str]], digest: str) -> None:
        self.digest = digest
        self.questions = {str(index): question for index, (question, _) in enumerate(rows)}
        self.gold = {str(index): answer for index, (_, answer) in enumerate(rows)}
        self.items: Mapping[str, str] = dict.fromkeys(self.gold, "questions")

    def judge(self, item: str, prediction: Any, mode: str) -> ItemVerdict:
        """Return the verdict on an answer's text; anything but text is wrong."""
        return judged(self.gold[item], prediction, mode)

    def expected(self, item: str) -> str:
        """Return the gold answer."""
        return self.gold[item]

    def playable(self, item: str, search: Search | None = None) -> BamboogleQuestion:
        """Return a question as a model attempts it, with a search engine or without."""
        gold = self.gold[item]
        return BamboogleQuestion(self.questions[item], partial(judged, gold), search=search)

    def measures(self, item: str, verdict: ItemVerdict) -> Mapping[str, Ratio]:
        """Return all four measures; the lenient one has a name of its own, whatever the mode."""
        names = ("exact_match", "f1", "contains", "lenient")
        return {name: (float(verdict.parts.get(name, 0)), 1.0) for name in names}


def load(data: Path) -> Bamboogle:
    """Return the suite of a folder with the official `test.csv`."""
    path = required(data, FILE)
    try:
        reader = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline=""))
        rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: no CSV: {error}; download the file again") from error
    if reader.fieldnames != COLUMNS or not rows:
        raise DataError(
            f"{path}: its first line is {reader.fieldnames}, wanted {COLUMNS} and rows below; "
            "take the official test.csv"
        )
    for line, row in enumerate(rows, 1):
        if not row["Question"] or not row["Answer"]:
            raise DataError(f"{path}, row {line}: no question or no answer: {row}")
    return Bamboogle([(row["Question"], row["Answer"]) for row in rows], digest_of(data, [path]))


LIMITS = AttemptLimits(turns=8, turn_tokens=1024, tokens=16_384, seconds=1200)
"""One turn without a search engine; with one, a search for each hop and as many again."""

BENCHMARK = Benchmark("bamboogle", MODES, "the answer's text", load, LIMITS, "exact_match")
