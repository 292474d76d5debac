"""Turns an agent's turn into actions of a server, or into a text that says why not."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from genenv_core.domains.kit.answers import without_thought
from genenv_core.domains.kit.served.client import as_object
from genenv_core.domains.kit.tools import ERROR
from genenv_core.domains.tool_calls import in_order
from genenv_core.errors import ConfigError
from genenv_core.types import JsonObject


class ActionForm(ABC):
    """How the agent's turns become actions."""

    tools: Sequence[JsonObject] = ()
    role = "tool"
    """The role of the messages with the server's answers."""

    def role_of(self, name: str) -> str:
        """Return the role of the message that answers an action with a tool's name."""
        del name
        return self.role

    @abstractmethod
    def actions(self, text: str) -> list[tuple[str, JsonObject | str]]:
        """Return the actions of a turn in order, each with the name of its tool; [] for none.

        A text in place of an action is the error that the agent reads for an invalid call.
        """


class ListedForm(ActionForm):
    """The agent calls the tools that the server lists."""

    def __init__(self, listed: object) -> None:
        """Read a server's list of tools; raises ConfigError for any other value."""
        self.tools = []
        for one in cast("list[Any]", listed) if isinstance(listed, list) else [None]:
            tool = as_object(one)
            schema = tool.get("input_schema") or tool.get("inputSchema") or {"type": "object"}
            if not isinstance(tool.get("name"), str) or not isinstance(schema, dict):
                raise ConfigError(f"the server lists tools that have no name: {listed!r:.120}")
            made = as_tool(
                tool["name"], str(tool.get("description") or ""), cast(JsonObject, schema)
            )
            self.tools.append(made)
        self._names = [tool["function"]["name"] for tool in self.tools]

    def actions(self, text: str) -> list[tuple[str, JsonObject | str]]:
        """Return each call in the form that the server takes."""
        return calls_in(text, {name: partial(self.action, name) for name in self._names})

    @abstractmethod
    def action(self, name: str, arguments: JsonObject) -> JsonObject:
        """Return a call of a tool in the form that the server takes."""


def calls_in(
    text: str, known: Mapping[str, Callable[[JsonObject], JsonObject]]
) -> list[tuple[str, JsonObject | str]]:
    """Return the calls of a turn in order, as `ActionForm.actions` does.

    `known` has, for each tool by name, a function that turns arguments into an action.
    """
    _, found = in_order(without_thought(text))
    made: list[tuple[str, JsonObject | str]] = []
    for call in found:
        if isinstance(call, str):
            why = f"{ERROR} the call is no JSON object with name and arguments"
            made.append((next(iter(known), "unknown"), why))
        elif call.name not in known:
            why = f"{ERROR} there is no tool {call.name[:60]!a}; the tools are {', '.join(known)}"
            made.append((call.name[:64], why))
        else:
            made.append((call.name, known[call.name](call.arguments)))
    return made


def as_tool(name: str, description: str, parameters: JsonObject) -> JsonObject:
    """Return a tool in OpenAI's form."""
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}
