"""BFCL's described functions as tools in OpenAI's form, and the names of calls back again.

The types become those of JSON schema. A name may have letters, digits, `_` and `-` there, so that
other characters, which are dots in BFCL, become underscores. An argument of a Java or JavaScript
function is source text; its description says of which type, as officially (bfcl-eval 2026.3.23,
`utils.py`; the sentences are ours).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_core.benchmarks.bfcl.categories import Language
from genenv_core.benchmarks.bfcl.shapes import is_list, is_object
from genenv_core.types import JsonObject

LONGEST_NAME = 64
"""Most characters of a tool's name, as OpenAI allows."""

TYPES = {
    "dict": "object",
    "object": "object",
    "float": "number",
    "number": "number",
    "tuple": "array",
    "array": "array",
    "string": "string",
    "integer": "integer",
    "boolean": "boolean",
}
"""JSON schema's name of a type; the schema omits the type for others, such as any."""

_KEPT = ("enum", "default", "format", "minimum", "maximum", "minItems", "maxItems")
_NAMES = {Language.JAVA: "Java", Language.JAVASCRIPT: "JavaScript"}


def tools_of(functions: Sequence[JsonObject], language: Language) -> list[JsonObject]:
    """Return the tools of described functions, in their order."""
    names = tool_names([function["name"] for function in functions])
    return [
        _tool(name, function, language) for name, function in zip(names, functions, strict=True)
    ]


def tool_names(names: Sequence[str]) -> list[str]:
    """Return a tool's name for each name; distinct names give distinct ones."""
    spelled = [re.sub(r"[^A-Za-z0-9_-]", "_", name)[:LONGEST_NAME] or "_" for name in names]
    taken = {name for name, tool in zip(names, spelled, strict=True) if name == tool}
    found: list[str] = []
    for name, tool in zip(names, spelled, strict=True):
        free, count = tool, 2
        while name != tool and free in taken:
            free, count = f"{tool[: LONGEST_NAME - 4]}_{count}", count + 1
        taken.add(free)
        found.append(free)
    return found


def _tool(name: str, function: JsonObject, language: Language) -> JsonObject:
    parameters: JsonObject = function["parameters"]
    described: Mapping[str, JsonObject] = parameters["properties"]
    schema: JsonObject = {
        "type": "object",
        "properties": {
            key: _schema(one) if language is Language.PYTHON else _source(one, _NAMES[language])
            for key, one in described.items()
        },
        "required": parameters["required"],
    }
    says = [_text(function.get("description"))]
    if language is not Language.PYTHON:
        says.append(f"This is a function of {_NAMES[language]}; its arguments are source text.")
    if is_object(function.get("response")):
        says.append(f"It returns {json.dumps(_schema(function['response']))}")
    description = " ".join(one for one in says if one)
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema},
    }


def _schema(described: object) -> JsonObject:
    """Return the JSON schema of a described value, an empty one for an invalid description."""
    if not is_object(described):
        return {}
    kind: Any = described.get("type")
    schema: JsonObject = {}
    if isinstance(kind, str) and kind in TYPES:
        schema["type"] = TYPES[kind]
    if described.get("description"):
        schema["description"] = _text(described["description"])
    schema |= {key: described[key] for key in _KEPT if key in described}
    if schema.get("type") == "array":
        schema["items"] = _schema(described.get("items"))
    inside = described.get("properties")
    if is_object(inside):
        schema["properties"] = {key: _schema(one) for key, one in inside.items()}
        needed = described.get("required")
        if is_list(needed):
            schema["required"] = needed
    return schema


def _source(described: JsonObject, language: str) -> JsonObject:
    """Return the schema of source text, whose description names the described type."""
    kind = described.get("type")
    says = [_text(described.get("description"))]
    if kind == "any":
        says.append(f"Write any {language} expression as text.")
    else:
        says.append(f"Write a {language} expression of the type {kind} as text.")
    items, inside = described.get("items"), described.get("properties")
    if is_object(items) and items.get("type"):
        says.append(f"Its elements are of the type {items['type']}.")
    if is_object(inside):
        says.append(f"Its entries are {json.dumps(inside)}.")
    schema: JsonObject = {"type": "string", "description": " ".join(one for one in says if one)}
    return schema | {key: described[key] for key in ("enum", "default") if key in described}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
