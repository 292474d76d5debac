"""Reads BFCL's items from a download."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from genenv_core.benchmarks.bfcl.categories import MULTI_TURN, SINGLE_TURN, Category, Matching
from genenv_core.benchmarks.bfcl.shapes import is_list, is_object
from genenv_core.benchmarks.files import read_lines, required
from genenv_core.errors import ConfigError, DataError
from genenv_core.types import JsonObject, Message

QUESTIONS = "question"
ANSWERS = "possible_answer"


@dataclass(frozen=True, slots=True)
class Row:
    """An item with all that its verdict needs; `gold` is empty in a category without gold.

    `messages` ask a model; they are empty where the download has no question.
    """

    id: str
    category: Category
    functions: Sequence[JsonObject]
    gold: Sequence[JsonObject]
    messages: Sequence[Message] = ()


def categories_in(data: Path) -> list[Category]:
    """Return the categories of a download that genenv scores; raises ConfigError without any."""
    folder = required(data, QUESTIONS)
    known = (*SINGLE_TURN, *MULTI_TURN)
    found = [category for category in known if (folder / category.file).is_file()]
    if not found:
        names = ", ".join(category.name for category in known)
        raise ConfigError(
            f"--data {data}: {QUESTIONS}/ has no BFCL_v4_<category>.json; wanted at least one of "
            f"{names}, and its answers in {ANSWERS}/"
        )
    return found


def files_of(data: Path, category: Category) -> list[Path]:
    """Return a category's files; raises ConfigError when one is missing."""
    folders = (QUESTIONS, ANSWERS) if category.kind.has_gold else (QUESTIONS,)
    return [required(data, f"{folder}/{category.file}") for folder in folders]


def read_rows(data: Path, category: Category) -> list[Row]:
    """Return a category's items in the order of their file; raises DataError for a broken one."""
    paths = files_of(data, category)
    if not category.kind.has_gold:
        return [_without_gold(name, category, one, paths[0]) for name, one in _by_id(paths[0])]
    rows: list[Row] = []
    for name, question, answer in read_pairs(data, category):
        functions, gold = question.get("function"), answer.get("ground_truth")
        if not are_functions(functions):
            raise DataError(f"{paths[0]}, {name}: 'function' is no list of described functions")
        if not _are_gold_calls(gold, functions, category.kind):
            raise DataError(
                f"{paths[1]}, {name}: 'ground_truth' is no list of calls of the row's functions "
                "with a list of values for each parameter"
            )
        messages = _only_turn(question, f"{paths[0]}, {name}")
        rows.append(Row(name, category, functions, gold, messages))
    return rows


def turns_of(question: JsonObject, where: str) -> list[list[Message]]:
    """Return the messages of each turn, [] without a question; raises DataError."""
    turns = question.get("question", [])
    if not is_list(turns) or not all(is_list(one) and all(map(_is_message, one)) for one in turns):
        raise DataError(f"{where}: 'question' has no lists of messages with role and content")
    return [[{"role": one["role"], "content": one["content"]} for one in turn] for turn in turns]


def _only_turn(question: JsonObject, where: str) -> list[Message]:
    turns = turns_of(question, where)
    if len(turns) > 1:
        raise DataError(f"{where}: 'question' has {len(turns)} turns where the category has one")
    return turns[0] if turns else []


def _without_gold(name: str, category: Category, question: JsonObject, path: Path) -> Row:
    functions = question.get("function", [])
    if functions != [] and not are_functions(functions):
        raise DataError(f"{path}, {name}: 'function' is no list of described functions")
    return Row(name, category, functions, (), _only_turn(question, f"{path}, {name}"))


def read_pairs(data: Path, category: Category) -> list[tuple[str, JsonObject, JsonObject]]:
    """Return id, question and answer of a category's items; raises DataError for a lone one."""
    paths = files_of(data, category)
    questions, answers = (dict(_by_id(path)) for path in paths)
    if questions.keys() != answers.keys():
        odd = min(questions.keys() ^ answers.keys())
        raise DataError(
            f"{paths[1]}: its ids are not those of {QUESTIONS}/: {odd} is in one of them alone"
        )
    return [(name, question, answers[name]) for name, question in questions.items()]


def _by_id(path: Path) -> Iterator[tuple[str, JsonObject]]:
    seen: set[str] = set()
    for number, row in enumerate(read_lines(path), 1):
        match row:
            case {"id": str(name)} if name not in seen:
                seen.add(name)
                yield name, row
            case _:
                raise DataError(f"{path}, row {number}: no object with an id of its own")


def _is_message(message: object) -> bool:
    return (
        is_object(message)
        and message.get("role") in ("system", "user", "assistant")
        and isinstance(message.get("content"), str)
    )


def are_functions(functions: object) -> TypeGuard[list[JsonObject]]:
    """Return whether a value is a list of functions as BFCL describes them, at least one."""
    return is_list(functions) and bool(functions) and all(map(_is_function, functions))


def _is_function(function: object) -> bool:
    if not is_object(function) or not isinstance(function.get("name"), str):
        return False
    parameters = function.get("parameters")
    if not is_object(parameters):
        return False
    needed, described = parameters.get("required"), parameters.get("properties")
    if not is_list(needed) or not is_object(described):
        return False
    names = all(isinstance(name, str) for name in needed)
    return names and all(map(is_object, described.values()))


def _are_gold_calls(
    gold: object, functions: Sequence[JsonObject], kind: Matching
) -> TypeGuard[list[JsonObject]]:
    if not is_list(gold) or not gold or (kind is not Matching.PARALLEL and len(gold) != 1):
        return False
    # Gold means a simple item's only function, whatever name it gives.
    names = None if kind is Matching.SIMPLE else {function["name"] for function in functions}
    return all(_is_gold_call(call, names) for call in gold)


def _is_gold_call(call: object, names: Collection[str] | None) -> bool:
    if not is_object(call) or len(call) != 1:
        return False
    ((name, parameters),) = call.items()
    known = names is None or name in names
    return known and is_object(parameters) and all(map(is_list, parameters.values()))
