"""BFCL's items and verdicts.

Single-turn categories so far. A multi-turn item will have a row and a judge of its own: `load` then
reads both kinds, and `Bfcl.judge` picks by the item's row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from genenv_core.benchmarks.bfcl.calls import check_calls, check_presence
from genenv_core.benchmarks.bfcl.categories import PYTHON_AST, Language, composites
from genenv_core.benchmarks.bfcl.faults import Fault
from genenv_core.benchmarks.bfcl.rows import Row, categories_in, files_of, read_rows
from genenv_core.benchmarks.files import digest_of
from genenv_core.benchmarks.protocol import Benchmark, Composite, ItemVerdict, Ratio

MODES = {
    "official": "a function is called by its name as described, dots included",
    "underscores": "dots in names are underscores, as for models whose interface has no dots",
}
PREDICTION = "a list of calls, [{function: {parameter: value}}, ...]; [] or a text calls nothing"


class Bfcl:
    """The items of one download; ids are BFCL's own."""

    def __init__(self, rows: Sequence[Row], digest: str) -> None:
        self.digest = digest
        self.rows = {row.id: row for row in rows}
        self.items: Mapping[str, str] = {row.id: row.category.name for row in rows}
        self.composites: Sequence[Composite] = composites(Counter(self.items.values()))

    def judge(self, item: str, prediction: Any, mode: str) -> ItemVerdict:
        """Return the verdict on the calls of a prediction; anything else calls nothing."""
        fault = check_row(self.rows[item], prediction, mode == "underscores")
        if fault is None:
            return ItemVerdict(True, 1.0, parts={"error_type": ""})
        parts = {"error_type": fault.type.value, **fault.more}
        return ItemVerdict(False, reason=fault.reason, parts=parts)

    def measures(self, item: str, verdict: ItemVerdict) -> Mapping[str, Ratio]:
        """Return the category's accuracy, and that over all Python items with a gold answer."""
        category = self.rows[item].category
        ratio = (verdict.score, 1.0)
        if category.kind.has_gold and category.language is Language.PYTHON:
            return {category.name: ratio, PYTHON_AST: ratio}
        return {category.name: ratio}


def check_row(row: Row, prediction: Any, underscores: bool = False) -> Fault | None:
    """Return None when a prediction is right, else what is wrong with it; never raises."""
    kind = row.category.kind
    if not kind.has_gold:
        return check_presence(prediction, kind)
    language = row.category.language
    return check_calls(prediction, row.functions, row.gold, kind, language, underscores)


def load(data: Path) -> Bfcl:
    """Return the suite of the single-turn categories that a download has."""
    found = categories_in(data)
    rows = [row for category in found for row in read_rows(data, category)]
    files = [path for category in found for path in files_of(data, category)]
    return Bfcl(rows, digest_of(data, files))


BENCHMARK = Benchmark("bfcl", MODES, PREDICTION, load)
