"""Turns an agent's turn into an action of an OpenEnv server, under the schema that it publishes.

Three forms. Where the action is one text, the whole turn is that text. Where the server takes calls
of MCP tools, the agent has these tools. In all other cases the agent has one tool, `act`, whose
arguments are the action.
"""

from __future__ import annotations

from genenv_core.domains.kit.answers import without_thought
from genenv_core.domains.kit.served.forms import ActionForm, ListedForm, as_tool, calls_in
from genenv_core.types import JsonObject

ACT = "act"
"""The name of the tool whose arguments are an action."""

LIST_TOOLS: JsonObject = {"type": "list_tools"}
"""The action that asks a server for its MCP tools."""


class TextForm(ActionForm):
    """Takes the whole turn for the one text of an action."""

    role = "user"

    def __init__(self, name: str) -> None:
        self._name = name

    def actions(self, text: str) -> list[tuple[str, JsonObject | str]]:
        """Return the text of the turn, without the thought of a reasoning model."""
        return [("", {self._name: without_thought(text).strip()})]


class ActForm(ActionForm):
    """Takes each call of `act` for an action."""

    def __init__(self, schema: JsonObject) -> None:
        said = schema.get("description") or "Acts in the environment."
        self.tools = [as_tool(ACT, str(said), _without_metadata(schema))]

    def actions(self, text: str) -> list[tuple[str, JsonObject | str]]:
        """Return the arguments of each call."""
        return calls_in(text, {ACT: lambda arguments: arguments})


class McpForm(ListedForm):
    """Takes calls of the server's MCP tools, which the server lists when it gets `LIST_TOOLS`."""

    def action(self, name: str, arguments: JsonObject) -> JsonObject:
        """Return the action that calls a tool."""
        return {"type": "call_tool", "tool_name": name, "arguments": arguments}


def takes_mcp(schema: JsonObject) -> bool:
    """Return whether an action schema describes calls of MCP tools."""
    return {"tool_name", "arguments"} <= schema.get("properties", {}).keys()


def form_of(schema: JsonObject) -> ActionForm:
    """Return how the agent's turns become actions, for a schema that `takes_mcp` rejects."""
    fields = _without_metadata(schema)["properties"]
    required = schema.get("required", [])
    if len(required) == 1 and fields.get(required[0], {}).get("type") == "string":
        return TextForm(str(required[0]))
    return ActForm(schema)


def _without_metadata(schema: JsonObject) -> JsonObject:
    """Return an action's schema without `metadata`, which every action has and no agent needs."""
    fields = {name: one for name, one in schema.get("properties", {}).items() if name != "metadata"}
    return {**schema, "properties": fields}
