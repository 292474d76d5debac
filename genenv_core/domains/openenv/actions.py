"""What an agent's turn is to an OpenEnv server: an action under the schema that it publishes.

Three forms. Where the action is one text, the whole turn is that text. Where the server takes
calls of MCP tools, the agent has these tools. Else it has one tool, `act`, whose arguments are the
action.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from genenv_core.domains.kit.answers import without_thought
from genenv_core.domains.kit.tools import ERROR
from genenv_core.domains.openenv.client import as_object
from genenv_core.domains.tool_calls import in_order
from genenv_core.errors import ConfigError
from genenv_core.types import JsonObject

ACT = "act"
"""The name of the tool whose arguments are an action."""

LIST_TOOLS: JsonObject = {"type": "list_tools"}
"""The action that asks a server for its MCP tools."""


class ActionForm(ABC):
    """How the agent's turns become actions."""

    tools: Sequence[JsonObject] = ()
    role = "tool"
    """Who says what the server answers."""

    @abstractmethod
    def actions(self, text: str) -> list[tuple[str, JsonObject | str]]:
        """Return the actions of a turn in order, each with the name of its tool; [] for none.

        What was meant as an action and cannot be one is the text that the agent gets for it.
        """


class TextForm(ActionForm):
    """The whole turn is the one text of an action."""

    role = "user"

    def __init__(self, name: str) -> None:
        self._name = name

    def actions(self, text: str) -> list[tuple[str, JsonObject | str]]:
        """Return the text of the turn, without what a reasoning model thinks first."""
        return [("", {self._name: without_thought(text).strip()})]


class ActForm(ActionForm):
    """Each call of `act` is an action."""

    def __init__(self, schema: JsonObject) -> None:
        said = schema.get("description") or "Acts in the environment."
        self.tools = [_tool(ACT, str(said), _without_metadata(schema))]

    def actions(self, text: str) -> list[tuple[str, JsonObject | str]]:
        """Return the arguments of each call."""
        return _calls(text, {ACT: lambda arguments: arguments})


class McpForm(ActionForm):
    """The agent calls the server's MCP tools."""

    def __init__(self, listed: object) -> None:
        """Read what the server answers to `LIST_TOOLS`; raises ConfigError for anything else."""
        self.tools = []
        for one in cast("list[Any]", listed) if isinstance(listed, list) else [None]:
            tool = as_object(one)
            schema = tool.get("input_schema") or tool.get("inputSchema") or {"type": "object"}
            if not isinstance(tool.get("name"), str) or not isinstance(schema, dict):
                raise ConfigError(f"the server lists tools that have no name: {listed!r:.120}")
            made = _tool(tool["name"], str(tool.get("description") or ""), cast(JsonObject, schema))
            self.tools.append(made)
        self._names = [tool["function"]["name"] for tool in self.tools]

    def actions(self, text: str) -> list[tuple[str, JsonObject | str]]:
        """Return each call as the server takes it."""
        return _calls(text, {name: partial(_mcp_call, name) for name in self._names})


def takes_mcp(schema: JsonObject) -> bool:
    """Return whether an action schema is that of calls of MCP tools."""
    return {"tool_name", "arguments"} <= schema.get("properties", {}).keys()


def form_of(schema: JsonObject) -> ActionForm:
    """Return how the agent's turns become actions; the schema is not that of `takes_mcp`."""
    fields = _without_metadata(schema)["properties"]
    required = schema.get("required", [])
    if len(required) == 1 and fields.get(required[0], {}).get("type") == "string":
        return TextForm(str(required[0]))
    return ActForm(schema)


def _mcp_call(name: str, arguments: JsonObject) -> JsonObject:
    return {"type": "call_tool", "tool_name": name, "arguments": arguments}


def _calls(
    text: str, known: Mapping[str, Callable[[JsonObject], JsonObject]]
) -> list[tuple[str, JsonObject | str]]:
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


def _tool(name: str, description: str, parameters: JsonObject) -> JsonObject:
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def _without_metadata(schema: JsonObject) -> JsonObject:
    """Return an action's schema without the field that every action has and nobody needs."""
    fields = {name: one for name, one in schema.get("properties", {}).items() if name != "metadata"}
    return {**schema, "properties": fields}
