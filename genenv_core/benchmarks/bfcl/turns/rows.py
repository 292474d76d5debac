"""BFCL's multi-turn items, read from a download."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from genenv_core.benchmarks.bfcl.categories import Category
from genenv_core.benchmarks.bfcl.rows import files_of, read_pairs
from genenv_core.benchmarks.bfcl.shapes import is_list, is_object
from genenv_core.benchmarks.bfcl.turns.backends import CLASSES
from genenv_core.errors import DataError
from genenv_core.types import JsonObject


@dataclass(frozen=True, slots=True)
class TurnsRow:
    """An item with all that its verdict needs; gold has a list of calls for each turn."""

    id: str
    category: Category
    classes: Sequence[str]
    config: JsonObject
    gold: Sequence[Sequence[str]]

    @property
    def long(self) -> bool:
        """Return whether the classes are filled with more than the item needs."""
        return "long_context" in self.category.name


def read_turns(data: Path, category: Category) -> list[TurnsRow]:
    """Return a category's items in the order of their file; raises DataError for a broken one."""
    questions, answers = files_of(data, category)
    rows: list[TurnsRow] = []
    for name, question, answer in read_pairs(data, category):
        classes, config = question.get("involved_classes"), question.get("initial_config")
        if not _are_classes(classes):
            known = ", ".join(CLASSES)
            raise DataError(f"{questions}, {name}: 'involved_classes' is no list of {known}")
        if not is_object(config) or not all(map(is_object, config.values())):
            raise DataError(f"{questions}, {name}: 'initial_config' is no object of objects")
        gold = answer.get("ground_truth")
        if not _are_turns(gold):
            raise DataError(f"{answers}, {name}: 'ground_truth' is no list of lists of texts")
        rows.append(TurnsRow(name, category, classes, config, gold))
    return rows


def _are_classes(names: object) -> TypeGuard[list[str]]:
    return is_list(names) and bool(names) and all(name in CLASSES for name in map(str, names))


def _are_turns(gold: object) -> TypeGuard[list[list[str]]]:
    return is_list(gold) and all(
        is_list(turn) and all(isinstance(call, str) for call in turn) for turn in gold
    )
