"""The texts of both policies: calls, answers, and rules for models not trained on trails."""

from __future__ import annotations

import json
from collections.abc import Sequence

from genenv_core.domains.parts import AIM, env_request
from genenv_core.domains.tool_calls import written
from genenv_core.domains.trails.cards import (
    FIELDS,
    LINKS,
    MOST_INDEX,
    PEOPLE,
    THINGS,
    Card,
    Trail,
)
from genenv_core.types import JsonObject

TOOL = "look"
NO_CARD = "no card"
"""The tool's answer about people whom the trail does not visit."""


def render_look(person: str, field: str) -> str:
    """Return the tool call that reads a field of a card."""
    return written({"name": TOOL, "arguments": {"card": person, "field": field}})


def render_answer(person: str, field: str, value: str) -> str:
    """Return the answer in a sentence, as the seed examples spell it."""
    return f"the {field} of {person} is {value}"


def render_history(request: str, looks: Sequence[str]) -> str:
    """Return the request with looks; each look is a person, a field and the tool's answer."""
    return " ; ".join([request, *looks])


def accepted(person: str, field: str, value: str) -> list[str]:
    """Return the right answers with which the verdict compares a text."""
    return [value, f"{person} {value}", f"{person} {field} {value}",
            f"{person} {field} is {value}", render_answer(person, field, value)]  # fmt: skip


def tool_request(person: str, card: Card | None, field: str) -> str:
    """Return pi_env's request in the place of the tool: a card, and the field to read."""
    told = ", ".join(f"{name} {value}" for name, value in card.items()) if card else NO_CARD
    return f"card of {person}: {told} ; read {field} ; answer:"


def tool_answer(content: str) -> str:
    """Return a tool's answer as pi_env writes it."""
    return json.dumps({"content": content})


# The example names people and a town that no task has: copying it is never a right answer.
_SHOWN = Trail("alex", ("boss", "friend", "town"), 0)
_LOOKS = (("alex", "boss", "kim"), ("kim", "friend", "lou"), ("lou", "town", "paris"))

AGENT_RULES = (
    f"You have a card index of people and one tool, {TOOL}, which reads one field of one card: "
    f"{', '.join(LINKS)} name another person, {', '.join(THINGS)} say something of the person. "
    "Follow the trail in the request: make one call, wait for what the tool says, then make the "
    "next. When you know what is asked for, say it in one sentence without a call. A call is one "
    "JSON object between <tool_call> and </tool_call>. For example, the request\n"
    f"{_SHOWN.request}\n"
    "is answered by these turns, with what the tool says after each call in brackets:\n"
    + "\n".join(f"{render_look(person, field)} [{value}]" for person, field, value in _LOOKS)
    + f"\n{render_answer(*_LOOKS[-1])}"
)

TOOL_RULES = (
    "You play a tool that reads one field of a card. Answer with one JSON object and nothing else: "
    f"{tool_answer(_LOOKS[-1][-1])}, where content is the value of the field on the card, and "
    f'"{NO_CARD}" if there is no card.'
)

_ENV = (
    "You write tasks for an agent that looks up cards of people, one after the other. Answer with "
    "one program on one line, and nothing else. A program is the person where the trail starts, "
    f"fields that lead on to another person ({', '.join(LINKS)}), one field that is asked for "
    f"({', '.join(THINGS)}), and a number from 0 to {MOST_INDEX}, which stands for the index. A "
    "program has 1 to {max_looks} fields. More fields are harder. The people are "
    f"{', '.join(PEOPLE)}.\n"
    f"{AIM}\n{env_request(0.9, 'eva pet 5')}\nvera {{links}}trade 72"
)


def env_rules(max_looks: int) -> str:
    """Return the rules of the compact language for pi_env, with an example within this bound."""
    links = "".join(f"{link} " for link in ("friend", "boss")[: max_looks - 1])
    return _ENV.format(max_looks=max_looks, links=links)


TOOLS: list[JsonObject] = [
    {
        "type": "function",
        "function": {
            "name": TOOL,
            "description": "Read one field of a person's card.",
            "parameters": {
                "type": "object",
                "properties": {
                    "card": {"type": "string", "description": "Whose card."},
                    "field": {"type": "string", "enum": list(FIELDS)},
                },
                "required": ["card", "field"],
            },
        },
    }
]
"""JSON schema of the tool, in the shape that chat templates and OpenAI-style APIs read."""

OBSERVATION_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"content": {"type": "string", "maxLength": 40}},
    "required": ["content"],
    "additionalProperties": False,
}
"""What pi_env writes in the place of the tool."""
