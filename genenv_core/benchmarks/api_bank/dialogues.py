"""Turns the dialogue before an item into chat messages, and finds the tools known by then.

The messages repeat recorded calls with their recorded answers. No tool runs again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from genenv_core.types import JsonObject, Message

SEARCHER = "ToolSearcher"
"""The tool of levels 2 and 3 that finds the others."""

GO_ON = "Go on."
"""The user's turn after a last turn of the assistant, which cannot speak twice."""


@dataclass(frozen=True, slots=True)
class DialogueTurn:
    """A text of the user or the assistant, or a call with its recorded answer."""

    who: Literal["user", "assistant", "tool"]
    text: str = ""
    arguments: JsonObject = field(default_factory=dict[str, Any])
    answer: Any = None

    @property
    def name(self) -> str:
        """The tool of a call."""
        return self.text


def dialogue_turn(row: Mapping[str, Any]) -> DialogueTurn:
    """Return a turn of a dialogue of level 1 or 2, from its row."""
    if row["role"] == "API":
        return DialogueTurn("tool", row["api_name"], row["param_dict"], _answer(row.get("result")))
    return DialogueTurn("user" if row["role"] == "User" else "assistant", str(row.get("text", "")))


def request_turns(request: Mapping[str, Any]) -> list[DialogueTurn]:
    """Return a request of level 3 and its calls, in order."""
    calls = [
        DialogueTurn("tool", call["api_name"], call["input"], _answer(call.get("output")))
        for call in request["apis"]
    ]
    return [DialogueTurn("user", str(request.get("requirement", "")).strip()), *calls]


def chat(turns: Sequence[DialogueTurn]) -> list[Message]:
    """Return the turns as messages, each call in the assistant's message before it.

    So users and assistants alternate, and no message has two calls, as some templates want.
    """
    messages: list[Message] = []
    for turn in turns:
        if turn.who == "tool":
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": ""})
            function = {"name": turn.name, "arguments": turn.arguments}
            messages[-1]["tool_calls"] = [{"type": "function", "function": function}]
            messages.append({"role": "tool", "name": turn.name, "content": written(turn.answer)})
        elif messages and messages[-1]["role"] == turn.who:
            messages[-1]["content"] += f"\n{turn.text}"
        else:
            messages.append({"role": turn.who, "content": turn.text})
    if messages and messages[-1]["role"] == "assistant":
        messages.append({"role": "user", "content": GO_ON})
    return messages


def written(answer: Any) -> str:
    """Return a tool's answer as text."""
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)


def found_tools(turns: Sequence[DialogueTurn]) -> list[str]:
    """Return the searcher and the tools that it has found so far, in that order."""
    named = [SEARCHER]
    for turn in turns:
        if turn.who == "tool" and turn.name == SEARCHER:
            named += _names(turn.answer)
    return list(dict.fromkeys(named))


def called_tools(turns: Sequence[DialogueTurn]) -> list[str]:
    """Return the tools of a whole dialogue."""
    return sorted({turn.name for turn in turns if turn.who == "tool"})


def _names(answer: Any) -> Iterator[str]:
    for one in cast("list[Any]", answer) if isinstance(answer, list) else [answer]:
        if isinstance(one, dict) and isinstance(name := cast(JsonObject, one).get("name"), str):
            yield name


def _answer(result: Any) -> Any:
    """Return a recorded tool's answer: its output, or why it failed."""
    if not isinstance(result, dict):
        return ""
    record = cast(JsonObject, result)
    failed = record.get("exception")
    return {"exception": failed} if failed else record.get("output", "")
