"""The agent's turns: calls go to the routes of tools, and a turn without a call gets a verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from genenv_core.domains.kit.answers import without_thought
from genenv_core.domains.kit.served.forms import ListedForm, calls_in
from genenv_core.domains.tool_calls import in_order
from genenv_core.types import Call, JsonObject

VERIFY = ""
"""The name of the action that ends an attempt; no tool has it."""


class GymForm(ListedForm):
    """Turns each call of a turn into one action, and a turn without calls into the end.

    The first action of a turn holds the whole turn: `text`, and `calls` as the agent wrote them.
    """

    def actions(self, text: str) -> list[tuple[str, JsonObject | str]]:
        """Return the calls of a turn, also calls of unknown tools: a verifier counts them."""
        said = without_thought(text)
        rest, found = in_order(said) if self.tools else (said.strip(), [])
        if not found:
            return [(VERIFY, {"said": {"text": rest, "calls": []}})]
        known = {name: partial(self.action, name) for name in self._names}
        answered = calls_in(text, known)
        turn = [_written(call, name) for call, (name, _) in zip(found, answered, strict=True)]
        actions: list[tuple[str, JsonObject | str]] = []
        for place, (name, action) in enumerate(answered):
            made: JsonObject = {"answer": action} if isinstance(action, str) else action
            first: JsonObject = {} if place else {"said": {"text": rest, "calls": turn}}
            actions.append((name, {**first, **made}))
        return actions

    def action(self, name: str, arguments: JsonObject) -> JsonObject:
        """Return a call of a tool."""
        return {"name": name, "arguments": arguments}

    def role_of(self, name: str) -> str:
        """Return the role of the server's answer: a tool, or the user for the end."""
        return "user" if name == VERIFY else self.role


class TurnLog:
    """An attempt so far, as items of OpenAI's Responses API.

    Ids are counters, and times are 0, so a repeated attempt has equal items.
    """

    def __init__(self) -> None:
        self.items: list[JsonObject] = []
        self._open: list[str] = []
        self._calls = 0

    def hear(self, said: JsonObject) -> None:
        """Add a turn of the agent."""
        if said["text"]:
            content: JsonObject = {"type": "output_text", "text": said["text"], "annotations": []}
            self.items.append(
                {
                    "type": "message", "id": f"msg_{len(self.items) + 1}", "role": "assistant",
                    "status": "completed", "content": [content],
                }
            )  # fmt: skip
        self._open = []
        for name, arguments in said["calls"]:
            self._calls += 1
            self._open.append(f"call_{self._calls}")
            self.items.append(
                {
                    "type": "function_call", "id": f"fc_{self._calls}", "name": name,
                    "call_id": self._open[-1], "arguments": arguments, "status": "completed",
                }
            )  # fmt: skip

    def answer(self, text: str) -> None:
        """Add the answer to the first call that waits for one."""
        call = self._open.pop(0)
        self.items.append({"type": "function_call_output", "call_id": call, "output": text})

    def response(self, tools: Sequence[object]) -> JsonObject:
        """Return the attempt as a response of the API; `tools` are those of the row."""
        return {
            "id": "resp_1", "object": "response", "created_at": 0, "model": "pi_agent",
            "status": "completed", "output": self.items, "parallel_tool_calls": True,
            "tool_choice": "auto", "tools": list(tools),
        }  # fmt: skip


def _written(call: Call | str, name: str) -> tuple[str, str]:
    """Return name and arguments of a call; an unreadable call has its whole text for arguments."""
    if isinstance(call, str):
        return name, call
    return call.name, json.dumps(call.arguments, ensure_ascii=False)
