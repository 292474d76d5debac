"""pi_env's prompt, and the JSON schema of what it writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from genenv_core.benchmarks.bfcl.training.catalogue import CATALOGUE
from genenv_core.domains.parts import AIM, env_request
from genenv_core.types import AgentHistory, JsonObject

_RULES = (
    "You write tasks for an agent that answers requests with calls of functions. Answer with one "
    'JSON object and nothing else: {{"question": ..., "functions": [...], "calls": [...]}}.\n'
    "question is what a user says, in plain words. It says or implies every value that a call "
    "needs, and spells no call.\n"
    "functions are those that the agent is offered, 1 to {hardest}. Each is a name out of this "
    "list:\n"
    "{catalogue}\n"
    "or a new one: an object with name, description and parameters, as track_parcel would be\n"
    "{described}\n"
    "The types are string, integer, float, boolean, array (with items) and dict (with properties "
    "and required). An optional parameter may have a default.\n"
    "calls are the right answer: each has the name of a function that is offered, and arguments of "
    "exactly the described types. Optional arguments that the question does not ask for are left "
    "out. The agent is right if it makes just these calls, in any order; texts are compared "
    "without case and punctuation. An empty list means that no function offered can do what is "
    "asked, and the agent has to see that.\n"
    "The families are simple (one function, one call), multiple (several functions, one call), "
    "parallel (one function, several calls), parallel_multiple (several of both) and irrelevance "
    "(no call). More calls, more functions that are not called, and values that must be worked out "
    "are harder; calls and functions that are not called are {hardest} together at most.\n"
    f"{AIM}\n"
    "{asked}\n"
    "{answer}"
)

_ASKED: JsonObject = {
    "question": "Note that I worked 4 and a half hours on Lantern, which nobody pays for.",
    "functions": ["record_hours"],
    "calls": [
        {
            "name": "record_hours",
            "arguments": {"project": "Lantern", "hours": 4.5, "billable": False},
        }
    ],
}
_ANSWER: JsonObject = {
    "question": "My sister and her three boys join me for dinner at the Anchor at a quarter to "
    "eight: get us a table, and tell me where parcel QX77120 is.",
    "functions": ["track_parcel", "restaurants.book_table", "home.start_vacuum"],
    "calls": [
        {
            "name": "restaurants.book_table",
            "arguments": {"restaurant": "Anchor", "people": 5, "time": "19:45"},
        },
        {"name": "track_parcel", "arguments": {"number": "QX77120"}},
    ],
}


def env_rules(hardest: int) -> str:
    """Return the rules for pi_env, with the catalogue and an example."""
    return _RULES.format(
        hardest=hardest,
        catalogue="\n".join(_signature(entry.function) for entry in CATALOGUE.values()),
        described=json.dumps(CATALOGUE["track_parcel"].function),
        asked=asked(AgentHistory(0.9, {"simple": (9, 10)}), json.dumps(_ASKED)),
        answer=json.dumps(_ANSWER),
    )


def _signature(function: JsonObject) -> str:
    """Return a function on one line: `name(parameter: type, ...): what it does`."""
    return f"{function['name']}({_fields(function['parameters'])}): {function['description']}"


def _fields(outer: JsonObject) -> str:
    return ", ".join(f"{name}: {_type(one)}" for name, one in outer["properties"].items())


def _type(one: JsonObject) -> str:
    text: str = one["type"]
    if "enum" in one:
        text = " | ".join(json.dumps(choice) for choice in one["enum"])
    elif text == "array":
        text = f"array of {_type(one['items'])}"
    elif "properties" in one:
        text = f"dict of ({_fields(one)})"
    default = f", {json.dumps(one['default'])} if left out" if "default" in one else ""
    says = f"{one.get('description', '')}{default}".strip(" ,")
    return f"{text} [{says}]" if says else text


def asked(history: AgentHistory, base: str) -> str:
    """Return pi_env's request: the agent's success, by family and in all, and a base task."""
    by_family = ", ".join(
        f"{family} {successes}/{attempts}"
        for family, (successes, attempts) in sorted(history.by_family.items())
    )
    families = f"families: {by_family}; " if by_family else ""
    return families + env_request(history.success_rate, base)


def schema(hardest: int) -> JsonObject:
    """Return the JSON schema of a generation; `read_program` checks what a schema cannot say."""
    described = _object(
        {
            "name": {"type": "string", "minLength": 1, "maxLength": 64},
            "description": {"type": "string"},
            "parameters": _object(
                {
                    "type": {"enum": ["dict", "object"]},
                    "properties": {"type": "object"},
                    "required": {"type": "array", "items": {"type": "string"}},
                }
            ),
        }
    )
    call = _object({"name": {"type": "string"}, "arguments": {"type": "object"}})
    return _object(
        {
            "question": {"type": "string", "minLength": 1},
            "functions": {
                "type": "array",
                "items": {"anyOf": [{"enum": list(CATALOGUE)}, described]},
                "minItems": 1,
                "maxItems": hardest,
            },
            "calls": {"type": "array", "items": call, "maxItems": hardest},
        }
    )


def _object(properties: Mapping[str, Any]) -> JsonObject:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
