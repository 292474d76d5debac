"""BFCL's items and verdicts, in single-turn and multi-turn categories."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from genenv_core.benchmarks.bfcl.calls import check_calls, check_presence
from genenv_core.benchmarks.bfcl.categories import PYTHON_AST, Language, Matching, composites
from genenv_core.benchmarks.bfcl.faults import PredictionFault
from genenv_core.benchmarks.bfcl.playing import SingleTurn
from genenv_core.benchmarks.bfcl.rows import Row, categories_in, files_of, read_rows
from genenv_core.benchmarks.bfcl.turns.backends import Absent, backends
from genenv_core.benchmarks.bfcl.turns.checks import check_turns
from genenv_core.benchmarks.bfcl.turns.playing import ManyTurns
from genenv_core.benchmarks.bfcl.turns.rows import TurnsRow, docs_of, read_docs, read_turns
from genenv_core.benchmarks.files import digest_of
from genenv_core.benchmarks.protocol import (
    AttemptLimits,
    Benchmark,
    Composite,
    ItemVerdict,
    Playable,
    Ratio,
)
from genenv_core.errors import DataError
from genenv_core.types import JsonObject

MODES = {
    "official": "a function is called by its name as described, dots included",
    "underscores": "dots in names are underscores, as for models whose interface has no dots",
}
PREDICTION = (
    "a list of calls, [{function: {parameter: value}}, ...]; [] or a text calls nothing. "
    "Multi-turn: turns of steps of texts, [[['cd(folder=\"a\")', 'ls()']], ...]"
)


class Bfcl:
    """The items of one download; ids are BFCL's own.

    `docs` are the functions of the multi-turn classes, for those who play such items.
    """

    def __init__(
        self,
        rows: Sequence[Row | TurnsRow],
        digest: str,
        docs: Mapping[str, Sequence[JsonObject]] | None = None,
    ) -> None:
        self.digest = digest
        self.docs = docs or {}
        self.rows = {row.id: row for row in rows}
        self.items: Mapping[str, str] = {row.id: row.category.name for row in rows}
        self.composites: Sequence[Composite] = composites(Counter(self.items.values()))

    def judge(self, item: str, prediction: Any, mode: str) -> ItemVerdict:
        """Return the verdict on the calls of a prediction; any other value counts as no call.

        A multi-turn item has no verdict while its back ends are not installed.
        """
        row = self.rows[item]
        if isinstance(row, TurnsRow):
            found = backends()
            if isinstance(found, Absent):
                return ItemVerdict(None, reason=str(found))
            fault = check_turns(prediction, row, found)
        else:
            fault = check_row(row, prediction, mode == "underscores")
        return verdict_of(fault)

    def playable(self, item: str) -> Playable:
        """Return the item as a model plays it; raises DataError when it has no question."""
        row = self.rows[item]
        if isinstance(row, TurnsRow):
            if row.turns:
                return ManyTurns(row, self.docs, self)
        elif row.messages:
            return SingleTurn(row, partial(self.judge, item))
        raise DataError(f"{item} of BFCL has no 'question': such a row is judged and not played")

    def expected(self, item: str) -> str:
        """Return the gold calls, each on a line, with all right values of a parameter."""
        row = self.rows[item]
        if isinstance(row, TurnsRow):
            return "\n".join(
                f"turn {turn}: {', '.join(calls)}" for turn, calls in enumerate(row.gold, 1)
            )
        calls = ((name, given) for call in row.gold for name, given in call.items())
        return "\n".join(
            f"{name}({', '.join(map(_accepted, given.items()))})" for name, given in calls
        )

    def measures(self, item: str, verdict: ItemVerdict) -> Mapping[str, Ratio]:
        """Return the category's accuracy, and that over all Python items with a gold answer."""
        category = self.rows[item].category
        ratio = (verdict.score, 1.0)
        single = category.kind.has_gold and category.kind is not Matching.TURNS
        if single and category.language is Language.PYTHON:
            return {category.name: ratio, PYTHON_AST: ratio}
        return {category.name: ratio}


def _accepted(parameter: tuple[str, Any]) -> str:
    name, values = parameter
    every = cast("list[Any]", values)  # as rows are checked when they are read
    return f"{name}={' or '.join(json.dumps(one, ensure_ascii=False) for one in every)}"


def verdict_of(fault: PredictionFault | None) -> ItemVerdict:
    """Return the verdict of a fault, or the right one without a fault."""
    if fault is None:
        return ItemVerdict(True, 1.0, parts={"error_type": ""})
    parts = {"error_type": fault.type.value, **fault.more}
    return ItemVerdict(False, reason=fault.reason, parts=parts)


def check_row(row: Row, prediction: Any, underscores: bool = False) -> PredictionFault | None:
    """Return None for a right prediction, else its fault; never raises."""
    kind = row.category.kind
    if not kind.has_gold:
        return check_presence(prediction, kind)
    language = row.category.language
    return check_calls(prediction, row.functions, row.gold, kind, language, underscores)


def load(data: Path) -> Bfcl:
    """Return the suite of the categories that a download has."""
    found = categories_in(data)
    rows: list[Row | TurnsRow] = []
    for category in found:
        turns = category.kind is Matching.TURNS
        rows += read_turns(data, category) if turns else read_rows(data, category)
    files = [path for category in found for path in files_of(data, category)]
    docs: dict[str, list[JsonObject]] = {}
    if any(category.kind is Matching.TURNS for category in found):
        docs = read_docs(data)
        files += [path for name, path in docs_of(data).items() if name in docs]
    return Bfcl(rows, digest_of(data, files), docs)


LIMITS = AttemptLimits(turns=168, turn_tokens=4_096, tokens=32_768, seconds=3600)
"""The turns and the tokens of one are the official ones: 21 messages in each of at most 8 turns.
32,768 tokens are the context of the smaller models; right attempts take a fifth of it, and up to
four fifths in the long context."""

HEADLINE = "multi_turn_base"
"""`overall` needs web search and memory, which genenv does not score, so it never has a value.
GenEnv (arXiv 2512.19682) reports one number as the base score, and the leaderboard calls this
category Base. The paper does not say which one it means."""

BENCHMARK = Benchmark("bfcl", MODES, PREDICTION, load, LIMITS, HEADLINE)
