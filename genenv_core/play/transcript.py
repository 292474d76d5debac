"""A stored transcript as people and other tools read it: text, tool calls, observations.

Policies write tool calls into their text (`genenv_core.domains.tool_calls`).
Messages of other origin carry them in `tool_calls`, as OpenAI-style APIs do. Both come out alike.
What only looks like a call stays the text that it is.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from genenv_core.domains.tool_calls import marked, parsed, read_call
from genenv_core.types import JsonObject, Message

SHAPELESS = ("Cc", "Cf")
"""Unicode categories without a shape; in a model's text they could hide or steer what is shown."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call that was read without an error."""

    name: str
    arguments: JsonObject

    def __str__(self) -> str:
        """Return the call as code: `ship(item="gears", total=5)`."""
        given = ", ".join(f"{key}={_json(value)}" for key, value in self.arguments.items())
        return f"{self.name}({given})"


@dataclass(frozen=True, slots=True)
class Turn:
    """One message: who speaks, and texts and calls in the order in which they were written."""

    role: str
    parts: tuple[str | ToolCall, ...]
    name: str = ""

    @property
    def calls(self) -> list[ToolCall]:
        """Return the tool calls of the turn."""
        return [part for part in self.parts if isinstance(part, ToolCall)]


def turns(messages: Sequence[Message]) -> list[Turn]:
    """Return the turns of a transcript; calls are looked for in what the assistant wrote."""
    return [_turn(message) for message in messages]


def openai_messages(messages: Sequence[Message]) -> list[JsonObject]:
    """Return a transcript as OpenAI-style APIs take it: `tool_calls` beside the text, with ids.

    There an observation answers a call. One that answers none (the call could not be read) is
    therefore said by the user.
    """
    found: list[JsonObject] = []
    waiting: list[str] = []
    for turn in turns(messages):
        text = "".join(part for part in turn.parts if isinstance(part, str))
        if turn.role == "tool":
            if waiting:
                found.append({"role": "tool", "tool_call_id": waiting.pop(0), "content": text})
            else:
                found.append({"role": "user", "content": text})
            continue
        message: JsonObject = {"role": turn.role, "content": text}
        if turn.calls:
            ids = [f"call_{len(found)}_{index}" for index in range(len(turn.calls))]
            message["content"] = text or None
            message["tool_calls"] = [
                {
                    "id": call_id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": _json(call.arguments)},
                }
                for call_id, call in zip(ids, turn.calls, strict=True)
            ]
            waiting = ids
        found.append(message)
    return found


def visible(text: str) -> str:
    """Return a model's text with characters replaced that hide, reorder or steer what is shown."""
    return "".join(
        char
        if char in "\n\t" or unicodedata.category(char) not in SHAPELESS
        else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )


def _turn(message: Message) -> Turn:
    text = message["content"]
    parts: list[str | ToolCall] = []
    if message["role"] == "assistant":
        end = 0
        for match in marked(text):
            call = _read(parsed(match[1]))
            if call is not None:
                parts += [text[end : match.start()], call]
                end = match.end()
        text = text[end:]
    parts.append(text)
    calls = (_read(entry.get("function")) for entry in message.get("tool_calls", ()))
    parts += [call for call in calls if call is not None]
    return Turn(message["role"], tuple(part for part in parts if part), message.get("name", ""))


def _read(value: object) -> ToolCall | None:
    call = read_call(value)
    return call and ToolCall(call.name, call.arguments)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
