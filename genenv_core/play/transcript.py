"""A stored transcript for people and other tools: text, tool calls, observations.

A transcript of genenv names the calls in its text (`genenv_core.play.calls`). Messages of other
origin carry them beside it, as OpenAI-style APIs do. Both come out alike. A text that only looks
like a call stays text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from genenv_core.domains.rewards import earned
from genenv_core.domains.tool_calls import call_as_read, read_call
from genenv_core.play.calls import said_calls, with_calls
from genenv_core.types import JsonObject, Message

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Names of tools that OpenAI-style APIs allow."""

ANEW = "anew"
"""A turn's name where the agent reads nothing of the conversation before it."""

UNKNOWN = "unknown"
"""Name of a call that cannot be read and names no tool."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One readable tool call."""

    name: str
    arguments: JsonObject

    def __str__(self) -> str:
        """Return the call as people read it."""
        return call_as_read(self.name, self.arguments)


@dataclass(frozen=True, slots=True)
class Turn:
    """One message: its role, and its texts and calls in order.

    `earned` are the rewards that an environment gave with it, in words, such as `reward 0.5`. Where
    the conversation began anew, the first message of the new prompt has the name `ANEW`.
    """

    role: str
    parts: tuple[str | ToolCall, ...]
    name: str = ""
    earned: str = ""

    @property
    def calls(self) -> list[ToolCall]:
        """Return the tool calls of the turn."""
        return [part for part in self.parts if isinstance(part, ToolCall)]


def turns(messages: Sequence[Message]) -> list[Turn]:
    """Return the turns of a transcript; looks for the calls where it does not name them."""
    return [_turn(message) for message in with_calls(messages)]


def openai_messages(messages: Sequence[Message]) -> list[JsonObject]:
    """Return a transcript that names its calls in the form of OpenAI-style APIs.

    There `tool_calls` stand beside the text, and an observation answers one. A message that answers
    no call becomes the user's. A call that cannot be read stays text if no message answers it;
    otherwise its one argument is `text`, as the agent wrote it.
    """
    answered = {message.get("tool_call_id") for message in messages}
    found: list[JsonObject] = []
    waiting: list[str] = []
    for place, message in enumerate(messages):
        ident = message.get("tool_call_id")
        if message["role"] == "tool" and ident not in waiting:
            ident = waiting[0] if waiting else None
        if ident in waiting:
            waiting.remove(ident)
            answer = {"tool_call_id": ident, "content": message["content"]}
            found.append({"role": "tool", **answer})
        elif message["role"] == "tool":
            found.append({"role": "user", "content": message["content"]})
        else:
            spoken = _apart(message, answered, place)
            found.append(spoken)
            if message["role"] == "assistant":
                waiting = [call["id"] for call in spoken.get("tool_calls", ())]
    return found


def _apart(message: Message, answered: Container[str | None], place: int) -> JsonObject:
    """Return a message with its calls beside the text."""
    inside = [call for call in said_calls(message) if call["well_formed"] or call["id"] in answered]
    text = "".join(part for part in _cut(message["content"], inside) if isinstance(part, str))
    calls = [(call["id"], *_function(call)) for call in inside]
    for entry in message.get("tool_calls", ()):
        call = None if "span" in entry else _read(entry.get("function"))
        if call is not None:
            calls.append((f"call_{place}_{len(calls)}", call.name, _json(call.arguments)))
    if not calls:
        return {"role": message["role"], "content": text}
    made: list[JsonObject] = [
        {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}
        for ident, name, arguments in calls
    ]
    return {"role": message["role"], "content": text or None, "tool_calls": made}


def _function(call: JsonObject) -> tuple[str, str]:
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    if call["well_formed"]:
        return name, arguments
    return name if TOOL_NAME.fullmatch(name) else UNKNOWN, _json({"text": arguments})


def _turn(message: Message) -> Turn:
    inside = [call for call in said_calls(message) if call["well_formed"]]
    parts = _cut(message["content"], inside)
    recorded = [call for call in message.get("tool_calls", ()) if "span" not in call]
    calls = (_read(entry.get("function")) for entry in recorded)
    parts += [call for call in calls if call is not None]
    said = tuple(part for part in parts if part)
    name = message.get("name", "") or (ANEW if message.get("anew") else "")
    return Turn(message["role"], said, name, earned(message))


def _cut(text: str, calls: Sequence[JsonObject]) -> list[str | ToolCall]:
    """Return a text in parts, with a call in place of each text that spells it."""
    parts: list[str | ToolCall] = []
    end = 0
    for call in sorted(calls, key=lambda call: call["span"]):
        first, last = call["span"]
        parts.append(text[end:first])
        if (made := _read(call["function"])) is not None:
            parts.append(made)
        end = max(end, last)
    return [*parts, text[end:]]


def _read(value: object) -> ToolCall | None:
    call = read_call(value)
    return call and ToolCall(call.name, call.arguments)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
