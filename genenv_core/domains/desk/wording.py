"""Prompts for models that never trained on desk: rules for both policies, and the tools."""

from __future__ import annotations

from genenv_core.domains.desk.program import (
    ITEMS,
    TOOL_NAMES,
    Clause,
    Operation,
    render_answer,
    render_call,
    render_program,
    render_request,
)
from genenv_core.domains.parts import AIM, env_request
from genenv_core.types import JsonObject

RECORDED, DONE = "recorded", "done"
"""The tool's answer to a call that it can read, and the agent's text after its last call."""

# The example names an item that no task has: copying it is never a right answer.
_SHOWN = (Clause("+", 8, "crates", 7), Clause("-", 9, "crates", 4), Clause("*", 3, "crates", 4))
_CALLS = [
    render_call(number, clause.name, clause.item, clause.total)
    for number, clause in enumerate(_SHOWN, start=1)
]

_AGENT = (
    "You keep the stock of a warehouse with three tools: receive adds pieces to the stock, ship "
    "takes pieces away from it, pack multiplies the pieces in a box by the boxes. Answer a request "
    "with one tool call for each of its parts, in their order{how}. A call is one JSON object "
    "between <tool_call> and </tool_call>: id counts the calls from 1, name is the tool, item is "
    "spelt as in the request, total is the resulting number of pieces. For example, the request\n"
    f"{render_request(_SHOWN)}\n"
    "is answered by{turns}:\n"
)

AGENT_RULES = _AGENT.format(
    how=", and nothing else: no words before, between or after the calls", turns=""
) + render_answer(_SHOWN)

DIALOGUE_RULES = _AGENT.format(
    how=": make one call, wait for what the tool answers, then make the next. Say "
    f"{DONE} after the last answer, and nothing but calls before",
    turns=" these turns",
) + "\n".join([*_CALLS, DONE])

TOOL_RULES = (
    "You play the tools of a warehouse. Answer a call with one JSON object and nothing else: "
    '{"content": "recorded", "name": "receive"}, where content is what the tool says and name is '
    "the tool."
)

_ENV = (
    "You write tasks for an agent that keeps the stock of a warehouse with the tools receive, ship "
    "and pack. Answer with one program on one line, and nothing else: no words before or after it. "
    'A program is 1 to {max_calls} clauses with " ; " between them. A clause is an operation, a '
    "number, an item and a number, with one blank between each:\n"
    "{receive}: {receive_means} (the tool receive)\n"
    "{ship}: {ship_means} (the tool ship); never ship more than there is\n"
    "{pack}: {pack_means} (the tool pack)\n"
    "Numbers are whole, from 1 to {max_operand}. The items are {items}. The agent must work out a "
    "total for each clause, so more clauses and larger numbers are harder.\n"
    f"{AIM}\n"
    "{asked}\n"
    "{answer}"
)


def env_rules(max_calls: int, max_operand: int) -> str:
    """Return the rules of the compact language for pi_env, with an example within these bounds."""

    def clause(operation: Operation, left: int, item: str, right: int) -> Clause:
        return Clause(operation, min(left, max_operand), item, min(right, max_operand))

    receive, ship = clause("+", 8, "bolts", 7), clause("-", 9, "gears", 4)
    pack = clause("*", 3, "nuts", 5)
    parts = {"receive": receive, "ship": ship, "pack": pack}
    return _ENV.format(
        max_calls=max_calls,
        max_operand=max_operand,
        items=", ".join(ITEMS),
        asked=env_request(0.9, render_program((receive,))),
        answer=render_program((pack, ship, clause("+", 2, "lamps", 6))[:max_calls]),
        **{name: render_program((part,)) for name, part in parts.items()},
        **{
            f"{name}_means": render_request((part,)).removesuffix(".")
            for name, part in parts.items()
        },
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
