"""A training task as a model plays it: a single-turn item that its spec holds completely.

Where no call is right, BFCL accepts any text, so a model that stays silent, or says anything at
all, would earn the reward. A training task therefore asks for a text that says, in the words of the
rules, that no function fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genenv_core.benchmarks.bfcl.categories import Category, Matching
from genenv_core.benchmarks.bfcl.playing import NO_FUNCTION, SingleTurn
from genenv_core.benchmarks.bfcl.rows import Row, are_functions, turns_of
from genenv_core.benchmarks.bfcl.suite import check_row, verdict_of
from genenv_core.benchmarks.bfcl.training.program import KINDS, family_of
from genenv_core.benchmarks.bfcl.training.rows import is_gold
from genenv_core.benchmarks.protocol import ItemVerdict
from genenv_core.errors import DataError, DomainError
from genenv_core.types import JsonObject, Said

NOTHING_FITS = f"{NO_FUNCTION} here does that."
"""The right answer where no call is right."""


class MadeTask(SingleTurn):
    """A training task; without a call, its prediction is the text of the turn."""

    def __init__(self, row: Row) -> None:
        """Take a row; its category's kind says how to compare the calls."""
        super().__init__(row, self._verdict)
        self._nothing = row.category.kind is Matching.IRRELEVANCE

    def prediction(self, said: Sequence[Said]) -> Any:
        """Return the calls of the first turn; its text where it makes no call and should not."""
        calls = super().prediction(said)
        return said[0].text if self._nothing and calls == [] and said else calls

    def _verdict(self, prediction: Any, mode: str) -> ItemVerdict:
        fault = check_row(self._row, prediction, mode == "underscores")
        if fault is None and self._nothing and not _declines(prediction):
            why = f"no line begins with {NO_FUNCTION!r}"
            return ItemVerdict(False, reason=why, parts={"error_type": "not_declined"})
        return verdict_of(fault)


def task_of(spec: JsonObject) -> MadeTask:
    """Return the task of a spec; raises DomainError for a broken one."""
    functions, gold = spec.get("functions"), spec.get("ground_truth")
    try:
        (messages,) = turns_of({"question": [spec.get("messages")]}, "bfcl: a spec")
    except DataError as error:
        raise DomainError(str(error)) from error
    if not are_functions(functions) or not is_gold(gold) or not messages:
        raise DomainError(f"bfcl: the spec {str(spec)[:120]} was not made by this domain")
    names = {function["name"] for function in functions}
    if any(name not in names for call in gold for name in call):
        raise DomainError("bfcl: the spec's ground_truth calls what is not among its functions")
    family = family_of(len(functions), len(gold))
    return MadeTask(Row("made", Category(family, KINDS[family]), functions, gold, messages))


def _declines(prediction: Any) -> bool:
    lines = prediction.splitlines() if isinstance(prediction, str) else []
    return any(line.strip().casefold().startswith(NO_FUNCTION.casefold()) for line in lines)
