"""Reads the items of a download: the recorded call or response, and the turns before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from genenv_core.benchmarks.api_bank.dialogues import (
    DialogueTurn,
    called_tools,
    dialogue_turn,
    found_tools,
    request_turns,
)
from genenv_core.benchmarks.api_bank.parsing.reading import UnreadableError
from genenv_core.benchmarks.api_bank.rules import TOOLS, TOOLS_OF_LEVEL_3, ToolRules
from genenv_core.benchmarks.api_bank.scoring import RecordedCall, Tool, recorded
from genenv_core.benchmarks.api_bank.searching import Search
from genenv_core.benchmarks.api_bank.state import ApiState
from genenv_core.benchmarks.files import digest_of, read_json, read_lines, required
from genenv_core.errors import ConfigError, DataError
from genenv_core.types import JsonObject

Gold = RecordedCall | str
"""A recorded call, or the text of a recorded response."""

DOCS = "api_docs.json"
DIALOGUES = {
    "lv1": "lv1-lv2-samples/level-1-given-desc",
    "lv2": "lv1-lv2-samples/level-2-toolsearcher",
}
REQUESTS = "test-data/level-3.json"
TABLES = ("Agenda", "Reminder")


@dataclass(frozen=True, slots=True)
class Item:
    """The recorded call or response, the turns before it, and the names of the known tools."""

    gold: Gold
    before: Sequence[DialogueTurn]
    tools: Sequence[str]


@dataclass(frozen=True, slots=True)
class Download:
    """The content of the files; the two sets of tools are of levels 1 and 2, and of level 3."""

    items: Mapping[str, Item]
    state: ApiState
    docs: Mapping[str, Mapping[str, JsonObject]]
    tools: Mapping[str, Mapping[str, Tool]] = field(repr=False)
    digest: str = ""


def set_of(item: str) -> str:
    """Return which set of tools an item's level has."""
    return "lv3" if item.startswith("lv3/") else "lv1_lv2"


def read_download(data: Path) -> Download:
    """Return the items by id in the official order, the tools, their databases, and the digest."""
    levels = [level for level, folder in DIALOGUES.items() if (data / folder).is_dir()]
    has_requests = (data / REQUESTS).is_file()
    if not levels and not has_requests:
        wanted = ", ".join([*DIALOGUES.values(), REQUESTS])
        raise ConfigError(
            f"--data {data}: no level of API-Bank is there; it needs at least one of {wanted} "
            "(docs/benchmarks/api_bank.md)"
        )
    docs = required(data, DOCS)
    files = [docs]
    declared = read_json(docs)
    items: dict[str, Item] = {}
    state, tools = ApiState({}, {}, Search([])), dict[str, dict[str, Tool]]()
    if levels:
        state, databases = _state(data)
        files += databases
        tools["lv1_lv2"] = _tools(docs, declared, "lv1_lv2", TOOLS)
    for level in levels:
        for path in sorted((data / DIALOGUES[level]).glob("*.jsonl")):
            files.append(path)
            for number, one in _samples(path, tools["lv1_lv2"], searches=level == "lv2"):
                items[f"{level}/{path.name}#{number}"] = one
    if has_requests:
        files.append(data / REQUESTS)
        tools["lv3"] = _tools(docs, declared, "lv3", TOOLS_OF_LEVEL_3)
        items |= _requests(data / REQUESTS, tools["lv3"])
    if not items:
        raise DataError(f"--data {data}: it has no item of API-Bank; download it again")
    shown = {key: {str(one["name"]): one for one in declared[key]} for key in tools}
    return Download(items, state, shown, tools, digest_of(data, files))


def _tools(path: Path, declared: Any, key: str, rules: Mapping[str, ToolRules]) -> dict[str, Tool]:
    """Return the tools of one set by name."""
    try:
        types = {
            str(one["name"]): {
                name: str(of["type"]) for name, of in one["input_parameters"].items()
            }
            for one in declared[key]
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path}: wanted a list {key} of tools, each with name and input_parameters, and the "
            f"type of each: {error!r}"
        ) from error
    return {name: Tool(name, of, rules.get(name, ToolRules())) for name, of in types.items()}


def _state(data: Path) -> tuple[ApiState, list[Path]]:
    """Return the databases that decide verdicts, and their files."""
    paths = {
        name: required(data, f"init_database/{name}.json")
        for name in ("Account", *TABLES, "SearchEngine")
    }
    try:
        accounts = read_json(paths["Account"]).items()
        tables = {name: list(read_json(paths[name]).values()) for name in TABLES}
        for row in (row for rows in tables.values() for row in rows):
            _ = row["username"], row["content"], row["time"]
        users: dict[str, str] = {}
        for user, account in accounts:
            users.setdefault(account["token"], user)
        documents = read_json(paths["SearchEngine"])["tokenized_documents"]
        search = Search([[str(word) for word in words] for words in documents])
        return ApiState(users, tables, search), list(paths.values())
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{data / 'init_database'}: Account needs a token for each user, Agenda and Reminder a "
            "username, content and time in each row, and SearchEngine tokenized_documents: "
            f"{error!r}"
        ) from error


def _samples(
    path: Path, tools: Mapping[str, Tool], *, searches: bool
) -> Iterator[tuple[int, Item]]:
    """Yield a dialogue's items with the official numbers.

    Each call of a dialogue makes two samples: the call, and the turn after it. Where that turn is a
    call too, it is an item twice. Where it is the user's, it has a number but makes no item. The
    tools are all of the dialogue's, or, where the model has to search for tools, those found
    before.
    """
    rows = read_lines(path)
    golds = [
        _recorded(path, row, tools, "param_dict") if _role(path, row) == "API" else None
        for row in rows
    ]
    turns = [dialogue_turn(row) for row in rows]
    number = 0
    for place, row in enumerate(rows):
        if row["role"] != "API":
            continue
        for at in range(place, min(place + 2, len(rows))):
            before = turns[:at]
            named = found_tools(before) if searches else called_tools(turns)
            if gold := golds[at]:
                yield number, Item(gold, before, named)
            elif rows[at]["role"] == "AI":
                yield number, Item(_text(path, rows[at], "text"), before, named)
            number += 1


def _requests(path: Path, tools: Mapping[str, Tool]) -> dict[str, Item]:
    """Return the calls of each request of level 3, in their order, and its response."""
    found: dict[str, Item] = {}
    requests = read_json(path)
    try:
        calls = [list(request["apis"]) for request in requests]
    except (KeyError, TypeError) as error:
        raise DataError(f"{path}: wanted a list of requests with apis: {error!r}") from error
    for number, request in enumerate(requests):
        golds = [_recorded(path, call, tools, "input") for call in calls[number]]
        response = _text(path, request, "response")
        turns = request_turns(request)
        for place, gold in enumerate([*golds, response]):
            key = f"lv3/{number}.{'response' if gold is response else place}"
            before = turns[: place + 1]
            found[key] = Item(gold, before, found_tools(before))
    return found


def _role(path: Path, turn: Any) -> str:
    return _text(path, turn, "role")


def _text(path: Path, record: Any, key: str) -> str:
    if isinstance(record, dict):
        found = cast("dict[str, Any]", record).get(key)
        if isinstance(found, str):
            return found
    shown = str(cast("object", record))[:200]
    raise DataError(f"{path}: wanted {key} as text in {shown}; download it again")


def _recorded(path: Path, record: Any, tools: Mapping[str, Tool], key: str) -> RecordedCall:
    name = _text(path, record, "api_name")
    arguments = record.get(key)
    if name not in tools or not isinstance(arguments, dict):
        raise DataError(f"{path}: {DOCS} has no {name}, or {key} is no record; download both again")
    try:
        return recorded(tools[name], cast("dict[str, Any]", arguments))
    except UnreadableError as error:
        raise DataError(f"{path}: {name}: {arguments}: {error}; download the file again") from error
