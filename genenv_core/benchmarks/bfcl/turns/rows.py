"""Reads BFCL's multi-turn items from a download."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

from genenv_core.benchmarks.bfcl.categories import Category
from genenv_core.benchmarks.bfcl.rows import are_functions, files_of, read_pairs, turns_of
from genenv_core.benchmarks.bfcl.shapes import is_list, is_object
from genenv_core.benchmarks.bfcl.turns.backends import CLASSES
from genenv_core.benchmarks.files import read_lines
from genenv_core.errors import DataError
from genenv_core.types import JsonObject, Message

DOCS = "multi_turn_func_doc"
"""The folder of a download that describes the classes' functions to a model."""


@dataclass(frozen=True, slots=True)
class TurnsRow:
    """An item with all that its verdict needs; gold has a list of calls for each turn.

    `turns` are the messages that open each turn of a conversation. In the turns of `missed` the
    model first reads functions that the item withheld until then.
    """

    id: str
    category: Category
    classes: Sequence[str]
    config: JsonObject
    gold: Sequence[Sequence[str]]
    turns: Sequence[Sequence[Message]] = ()
    missed: Mapping[int, Sequence[str]] = field(default_factory=dict[int, Sequence[str]])

    @property
    def long(self) -> bool:
        """Return whether the classes hold more data than the item needs."""
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
        turns = turns_of(question, f"{questions}, {name}")
        if turns and len(turns) != len(gold):
            raise DataError(f"{questions}, {name}: {len(turns)} turns where gold has {len(gold)}")
        missed = question.get("missed_function", {})
        if not _are_missed(missed):
            raise DataError(f"{questions}, {name}: 'missed_function' has no names by turn")
        missed = {int(turn): names for turn, names in missed.items()}
        rows.append(TurnsRow(name, category, classes, config, gold, turns, missed))
    return rows


def read_docs(data: Path) -> dict[str, list[JsonObject]]:
    """Return the functions of each class that the download describes; raises DataError."""
    found = {name: path for name, path in docs_of(data).items() if path.is_file()}
    docs = {name: read_lines(path) for name, path in found.items()}
    for name, functions in docs.items():
        if not are_functions(functions):
            raise DataError(f"{found[name]}: not one described function a line")
    return docs


def docs_of(data: Path) -> dict[str, Path]:
    """Return where a download describes the functions of each class."""
    return {name: data / DOCS / f"{module}.json" for name, module in CLASSES.items()}


def _are_missed(missed: object) -> TypeGuard[dict[str, list[str]]]:
    return is_object(missed) and all(
        turn.isdecimal() and is_list(names) and all(isinstance(name, str) for name in names)
        for turn, names in missed.items()
    )


def _are_classes(names: object) -> TypeGuard[list[str]]:
    return is_list(names) and bool(names) and all(name in CLASSES for name in map(str, names))


def _are_turns(gold: object) -> TypeGuard[list[list[str]]]:
    return is_list(gold) and all(
        is_list(turn) and all(isinstance(call, str) for call in turn) for turn in gold
    )
