"""Writes the official tools as JSON schemas, and calls as the official harness reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from genenv_core.types import Call, JsonObject

TYPES: Mapping[str, JsonObject] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "list": {"type": "array", "items": {}},
    "list(str)": {"type": "array", "items": {"type": "string"}},
}
"""JSON schemas of the declared types."""

_OPTIONAL = ("[optional]", "only needed for")
"""Marks in descriptions of optional arguments."""

_NO_WORD = re.compile(r"\W")


def schema(doc: Mapping[str, Any]) -> JsonObject:
    """Return a declared tool in OpenAI's form."""
    declared: Mapping[str, Mapping[str, Any]] = doc["input_parameters"]
    properties = {
        name: {
            **TYPES.get(str(of.get("type")), {"type": "string"}),
            "description": str(of.get("description", "")),
        }
        for name, of in declared.items()
    }
    parameters = {
        "type": "object",
        "properties": properties,
        "required": needed(doc),
        "additionalProperties": False,
    }
    function = {
        "name": str(doc["name"]),
        "description": str(doc.get("description", "")),
        "parameters": parameters,
    }
    return {"type": "function", "function": function}


def needed(doc: Mapping[str, Any]) -> list[str]:
    """Return the arguments of a declared tool that no description calls optional."""
    return [
        name
        for name, of in doc["input_parameters"].items()
        if not any(mark in str(of.get("description", "")).lower() for mark in _OPTIONAL)
    ]


def spelled(call: Call) -> str:
    """Return a call on one line, as `finding.find_call` reads it.

    Values stand in quotes, as in the official data, and lose the same as there: a line break is a
    space, and a text ends at its first quote, except beside a list.
    """
    lists = any(isinstance(value, list | dict) for value in call.arguments.values())
    given = ", ".join(
        f"{_NO_WORD.sub('_', key)}={_value(value, escape=lists)}"
        for key, value in call.arguments.items()
    )
    return f"[{_NO_WORD.sub('_', call.name)}({given})]"


def _value(value: Any, *, escape: bool) -> str:
    if isinstance(value, list | dict):
        return _one_line(_json(value))
    text = _one_line(value if isinstance(value, str) else str(value))
    # The harness reads a quoted list as a list, not as text with quotes.
    if escape and text[:1] not in ("[", "{"):
        text = re.sub(r"(['\"\\])", r"\\\1", text)
    return f"'{text}'"


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (RecursionError, ValueError):
        return "[]"


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())
