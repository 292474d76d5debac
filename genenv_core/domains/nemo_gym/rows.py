"""Reads the rows of a data set of NeMo Gym: each is a task, with the messages for the agent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from genenv_core.canonical import digest
from genenv_core.domains.kit.served.client import as_list, as_object
from genenv_core.domains.kit.tools import told
from genenv_core.domains.tool_calls import written
from genenv_core.errors import ConfigError, one_line
from genenv_core.machine.json_files import json_object
from genenv_core.types import JsonObject, Message

PARAMS = "responses_create_params"
"""The field of a row with the agent's prompt: a request of OpenAI's Responses API."""

PLACE = "domain.options.rows"

ROUTES = ("verify", "seed_session", "close_session", "aggregate_metrics", "reverify_mode", "mcp")
"""Routes of a server that no tool may have for its name."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class GymRow:
    """One task.

    Args:
        fields: the row as it is, for the server.
        messages: what the agent reads.
        tools: the functions that the agent may call, in the form of a server's list of tools.
    """

    fields: JsonObject
    messages: tuple[Message, ...]
    tools: tuple[JsonObject, ...]

    @property
    def prompt(self) -> str:
        """The request as one text: the messages without the system's."""
        said = [one for one in self.messages if one["role"] != "system"]
        return "\n\n".join(filter(None, (one["content"] for one in said)))

    @property
    def listed(self) -> str:
        """The digest of the tools; rows with equal tools share it."""
        return digest(list(self.tools))


def read_rows(path: Path, split_field: str | None, split: str) -> dict[str, list[GymRow]]:
    """Return the rows of a file by split, in the order of the file.

    Args:
        path: a file of JSON lines.
        split_field: the field with a row's split; None: all rows are of `split`.
        split: the split of all rows, where no field names one.

    Raises ConfigError for a file that cannot be read or has no rows, and for a row that is no task.
    """
    found: dict[str, list[GymRow]] = {}
    for where, fields in _lines(path):
        of = split if split_field is None else fields.get(split_field)
        if not isinstance(of, str) or not of:
            raise ConfigError(
                f"{where}: its field {split_field!r} is {of!r:.60}: name a field with a split in "
                "domain.options.split_field"
            )
        found.setdefault(of, []).append(_row(fields, where))
    if not found:
        raise ConfigError(f"{PLACE}: {path} has no rows")
    return found


def _lines(path: Path) -> Iterator[tuple[str, JsonObject]]:
    try:
        lines = path.read_bytes().splitlines()  # of bytes: a text may hold other ends of lines
    except OSError as error:
        raise ConfigError(f"{PLACE}: {path} cannot be read: {one_line(error, 120)}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{PLACE}: {path}, line {number}"
        try:
            yield where, json_object(line)
        except ValueError as error:
            raise ConfigError(f"{where} {error}; write a row as an object on one line") from error


def _row(fields: JsonObject, where: str) -> GymRow:
    asked = as_object(fields.get(PARAMS))
    given = asked.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else as_list(given)
    messages = [made for one in items if (made := _message(as_object(one), where)) is not None]
    if not any(one["role"] == "user" for one in messages):
        raise ConfigError(f"{where}: {PARAMS}.input has no message of a user: {str(given)[:60]}")
    if rules := asked.get("instructions"):
        messages.insert(0, {"role": "system", "content": told(rules)})
    tools = tuple(_tool(as_object(one), where) for one in as_list(asked.get("tools")))
    return GymRow(fields, tuple(_joined(messages)), tools)


def _message(item: JsonObject, where: str) -> Message | None:
    """Return an item of a request as a message; None for a thought, which nobody reads."""
    kind = item.get("type", "message")
    if kind == "reasoning":
        return None
    if kind == "function_call":
        return {"role": "assistant", "content": _call(item, where)}
    if kind == "function_call_output":
        return {"role": "tool", "content": told(item.get("output", ""))}
    role = {"developer": "system"}.get(str(item.get("role")), item.get("role"))
    if kind != "message" or role not in ("system", "user", "assistant"):
        raise ConfigError(f"{where}: {PARAMS}.input has an item that is no message: {item!r:.80}")
    return {"role": role, "content": _content(item.get("content"))}


def _call(item: JsonObject, where: str) -> str:
    arguments = item.get("arguments")
    try:
        value: object = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{where}: the call of {item.get('name')!r:.60} has arguments that are no JSON: "
            f"{one_line(error, 80)}"
        ) from error
    return written({"name": item.get("name"), "arguments": value})


def _content(content: object) -> str:
    """Return the texts of a message; a bracketed type stands for other parts, such as images."""
    if not isinstance(content, list):
        return told(content)
    parts = [as_object(one) for one in cast("list[object]", content)]
    return "\n".join(str(one.get("text", f"[{one.get('type', 'part')}]")) for one in parts)


def _joined(messages: list[Message]) -> Iterator[Message]:
    """Yield the messages, with the system's at the beginning as one: templates take only one."""
    first = next((at for at, one in enumerate(messages) if one["role"] != "system"), 0)
    if first:
        yield {"role": "system", "content": "\n\n".join(one["content"] for one in messages[:first])}
    yield from messages[first:]


def _tool(tool: JsonObject, where: str) -> JsonObject:
    name = tool.get("name")
    if tool.get("type", "function") != "function" or not isinstance(name, str):
        raise ConfigError(f"{where}: only functions can be called, not {tool!r:.80}")
    if not _NAME.fullmatch(name) or name in ROUTES:
        raise ConfigError(
            f"{where}: a tool is named {name!r:.80}: a tool's name has 1 to 64 characters, each "
            "a letter a to z, a digit, _ or -, and the server keeps these names for routes of its "
            f"own: {', '.join(ROUTES)}. Rename the tool in the row and in the server"
        )
    schema = tool.get("parameters")
    return {"name": name, "description": tool.get("description"), "input_schema": schema}
