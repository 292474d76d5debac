"""A user's own rows in BFCL's format, as another source of base tasks.

A row has `question` (one turn of messages, the last one the user's), `function` (described ones of
Python) and `ground_truth` ([{function: {parameter: [values]}}, ...], [] where nothing fits), as in
BFCL's files; an answer lies in the same row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from genenv_core.benchmarks.bfcl.rows import turns_of
from genenv_core.benchmarks.bfcl.shapes import is_list, is_object
from genenv_core.benchmarks.bfcl.training.program import Program, read_program
from genenv_core.benchmarks.files import read_lines
from genenv_core.errors import ConfigError, DataError
from genenv_core.types import Call, JsonObject, Message, Rejected


@dataclass(frozen=True, slots=True)
class GivenTask:
    """A user's row: its own messages and gold, and its program with gold's first values."""

    program: Program
    messages: list[Message]
    gold: list[JsonObject]


def required_rows(path: Path) -> Path:
    """Return the path of a user's rows; raises ConfigError where there is no such file."""
    if not path.is_file():
        raise ConfigError(f"domain.options.train {path}: there is no such file")
    return path


def read_given(path: Path, hardest: int) -> list[GivenTask]:
    """Return the tasks of a file, each task once; raises DataError for a broken row."""
    tasks: dict[str, GivenTask] = {}
    for number, row in enumerate(read_lines(path), 1):
        task = _task(row, f"{path}, row {number}", hardest)
        tasks.setdefault(task.program.spelled(), task)
    return list(tasks.values())


def _task(row: object, where: str, hardest: int) -> GivenTask:
    if not is_object(row):
        raise DataError(f"{where}: no object")
    turns = turns_of(row, where)
    if len(turns) != 1 or not turns[0] or turns[0][-1]["role"] != "user":
        raise DataError(f"{where}: 'question' has to be one turn that ends with the user's message")
    gold = row.get("ground_truth")
    if not is_gold(gold):
        raise DataError(f"{where}: 'ground_truth' has no [{{function: {{parameter: [values]}}}}]")
    program = read_program(_text(turns[0][-1]["content"], row.get("function"), gold), hardest)
    if isinstance(program, Rejected):
        raise DataError(f"{where}: {program.reason.value}: {program.detail}")
    return GivenTask(program, turns[0], gold)


def is_gold(gold: object) -> TypeGuard[list[JsonObject]]:
    """Return whether a value is a list of calls with a list of values for each parameter."""
    return is_list(gold) and all(is_object(one) and len(one) == 1 and _lists(one) for one in gold)


def _lists(call: JsonObject) -> bool:
    return all(is_object(one) and all(map(is_list, one.values())) for one in call.values())


def first_calls(gold: Sequence[JsonObject]) -> list[Call]:
    """Return calls with the first values that gold lists."""
    return [
        Call(name, {key: _first(listed) for key, listed in _given(values)})
        for call in gold
        for name, values in call.items()
    ]


def _text(question: str, functions: object, gold: Sequence[JsonObject]) -> str:
    """Return a row in the form that pi_env writes."""
    calls = [{"name": one.name, "arguments": one.arguments} for one in first_calls(gold)]
    return json.dumps({"question": question, "functions": functions, "calls": calls})


def _given(values: JsonObject) -> list[tuple[str, list[Any]]]:
    """Return gold's values of the parameters to give: '' in the first place omits one."""
    return [(key, listed) for key, listed in values.items() if listed and listed[0] != ""]


def _first(listed: Sequence[Any]) -> Any:
    """Return the first listed value; dicts, also those in lists, have a list for each key."""
    value = listed[0]
    if is_object(value):
        return _keys(value)
    if is_list(value) and value and all(map(is_object, value)):
        return [_keys(one) for one in value]
    return value


def _keys(gold: JsonObject) -> JsonObject:
    lists = {key: listed if is_list(listed) else [listed] for key, listed in gold.items()}
    return {key: listed[0] for key, listed in _given(lists)}
