"""Prompts for models that were never trained on desk: rules for both policies, and the tools."""

from __future__ import annotations

from genenv_core.domains.desk.program import ITEMS, TOOL_NAMES, render_call
from genenv_core.types import JsonObject

# The example names an item that no task has: copying it is never a right answer.
AGENT_RULES = (
    "You keep the stock of a warehouse. Answer a request with one tool call for each of its parts, "
    "in order, and nothing else. Write each as "
    f"{render_call(1, 'receive', 'crates', 15)}"
    ". receive adds to the stock, ship takes away from it, pack multiplies the pieces "
    "in a box by the boxes; total is the resulting number of pieces."
)

DIALOGUE_RULES = AGENT_RULES.replace(
    "with one tool call for each of its parts, in order, and nothing else.",
    "with one tool call for each of its parts, in order: one call, then wait for what the tool "
    "answers, then the next. Say done after the last answer.",
)

TOOL_RULES = (
    "You play the tools of a warehouse. Answer a call with one JSON object and nothing else: "
    '{"content": "recorded", "name": "receive"}, where content is what the tool says and name is '
    "the tool."
)

RECORDED, DONE = "recorded", "done"
"""What a tool says to a call that it can read, and what the agent says when it has no more."""


def env_rules(max_calls: int, max_operand: int) -> str:
    """Return the rules of the compact language, for pi_env."""
    return (
        "You write tasks for an agent that keeps stock. Answer with one program and nothing "
        "else, such as: + 8 bolts 7 ; - 9 gears 4 ; * 3 nuts 4. Clauses are separated by ; "
        "and each is an operation, a number, an item, a number: + receives more, - ships no "
        f"more than there is, * packs boxes. Use 1 to {max_calls} clauses, numbers "
        f"from 1 to {max_operand}, and these items: {', '.join(ITEMS)}. You are told "
        "the agent's recent success; aim for tasks that it solves half of the time, and make "
        "a new one, no copy of the base task."
    )


def _tool(name: str) -> JsonObject:
    what = {
        "receive": "Record that more pieces of an item arrived.",
        "ship": "Record that pieces of an item left.",
        "pack": "Record that boxes of an item were packed.",
    }
    properties = {
        "item": {"type": "string", "enum": list(ITEMS)},
        "total": {"type": "integer", "description": "Pieces in all, afterwards."},
    }
    parameters = {"type": "object", "properties": properties, "required": ["item", "total"]}
    function = {"name": name, "description": what[name], "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS: list[JsonObject] = [_tool(name) for name in TOOL_NAMES.values()]
"""JSON schemas of the tools, in the shape that chat templates and OpenAI-style APIs read."""

OBSERVATION_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "content": {"type": "string"},
        "name": {"type": "string", "enum": list(TOOL_NAMES.values())},
    },
    "required": ["content"],
    "additionalProperties": False,
}
"""What pi_env writes in the place of a tool."""
