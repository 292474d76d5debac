"""Reads functions that pi_env describes, and checks that the values of a call fit them.

Where gold has a value of another type than described, BFCL's checker goes by gold's type. pi_env
writes gold too, so its values have to fit its own descriptions exactly: a boolean is no integer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from genenv_core.benchmarks.bfcl.shapes import is_list, is_object
from genenv_core.types import Call, JsonObject

TYPES: Mapping[str, str] = {
    "string": "string",
    "integer": "integer",
    "float": "float",
    "number": "float",
    "boolean": "boolean",
    "array": "array",
    "dict": "dict",
    "object": "dict",
}
"""BFCL's name of each type, by its names in BFCL and in JSON schema."""

DEEPEST = 4
"""Most levels of a description: a list of dicts with texts has three."""

LARGEST = 2**53
"""Largest integer: beyond it, reading an integer as a float changes its value."""

_NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}", re.ASCII)


def described(function: object) -> JsonObject | str:
    """Return a function as BFCL describes one, or what is wrong with the description."""
    if not is_object(function):
        return "neither a name nor an object"
    name, says = function.get("name"), function.get("description", "")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "name is no name of a function"
    if not isinstance(says, str):
        return "description is no text"
    parameters = function.get("parameters")
    if not is_object(parameters) or not is_object(parameters.get("properties")):
        return "parameters have no properties"
    inside = _inside(parameters, 1)
    if isinstance(inside, str):
        return inside
    return {"name": name, "description": says, "parameters": {"type": "dict", **inside}}


def _inside(outer: JsonObject, depth: int) -> JsonObject | str:
    """Return a dict's properties and the names of the required ones, or what is wrong."""
    properties: JsonObject = {}
    for name, one in outer["properties"].items():
        value = _value(one, depth)
        if isinstance(value, str):
            return f"{name[:60]!r}: {value}"
        properties[name] = value
    needed = outer.get("required", [])
    if not is_list(needed) or not all(isinstance(one, str) and one in properties for one in needed):
        return "required names what is no property"
    return {"properties": properties, "required": list(dict.fromkeys(needed))}


def _value(one: object, depth: int) -> JsonObject | str:
    kind: Any = one.get("type") if is_object(one) else None
    if not is_object(one) or not isinstance(kind, str) or kind not in TYPES:
        return f"its type is none of {', '.join(TYPES)}"
    if depth > DEEPEST:
        return f"more than {DEEPEST} levels"
    says = one.get("description", "")
    if not isinstance(says, str):
        return "its description is no text"
    value: JsonObject = {"type": TYPES[kind]} | ({"description": says} if says else {})
    if TYPES[kind] == "array":
        items = _value(one.get("items"), depth + 1)
        if isinstance(items, str):
            return f"items: {items}"
        value["items"] = items
    if TYPES[kind] == "dict" and is_object(one.get("properties")):
        inside = _inside(one, depth + 1)
        if isinstance(inside, str):
            return inside
        value |= inside
    if one.get("default") is not None:
        if unfit(one["default"], value):
            return "its default does not fit its type"
        value["default"] = one["default"]
    if "enum" in one:
        listed = one["enum"]
        if not is_list(listed) or not listed or any(unfit(choice, value) for choice in listed):
            return "its enum is no list of values that fit its type"
        value["enum"] = listed
    return value


def misfit(function: JsonObject, call: Call) -> str:
    """Return why a call does not fit a function, '' where it fits."""
    return _misfit_of_all(call.arguments, function["parameters"])


def _misfit_of_all(values: JsonObject, outer: JsonObject) -> str:
    for name in outer["required"]:
        if name not in values:
            return f"{name[:60]!r} is required and missing"
    for name, value in values.items():
        if name not in outer["properties"]:
            return f"{name[:60]!r} is no parameter"
        why = unfit(value, outer["properties"][name])
        if why:
            return f"{name[:60]!r}: {why}"
    return ""


def unfit(value: object, one: JsonObject) -> str:
    """Return why a value does not fit its description, '' where it fits."""
    kind: str = one["type"]
    if not _is(kind, value):
        return f"no {kind}"
    if "enum" in one and value not in one["enum"]:
        return "not one of its enum"
    if is_list(value):
        return next((why for why in (unfit(item, one["items"]) for item in value) if why), "")
    if is_object(value):
        if "properties" in one:
            return _misfit_of_all(value, one)
        # Gold says of a dict's key that it may be left out by listing an empty text.
        return "an empty text" if "" in value.values() else ""
    return ""


def _is(kind: str, value: object) -> bool:
    match kind:
        case "string":
            # An empty text says in gold that the parameter may be left out.
            return isinstance(value, str) and value != ""
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST
        case "float":
            if isinstance(value, bool) or not isinstance(value, int | float):
                return False
            return abs(value) <= LARGEST
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return is_list(value)
        case _:
            return is_object(value)


def gold_of(function: JsonObject, call: Call) -> JsonObject:
    """Return the values that each parameter of a call may have.

    A call may give a parameter that it leaves out its default, and may leave out one that has it.
    """
    return _allowed(call.arguments, function["parameters"])


def _allowed(values: JsonObject, outer: JsonObject) -> JsonObject:
    allowed: JsonObject = {}
    for name, one in outer["properties"].items():
        if name in values:
            value = values[name]
            free = name not in outer["required"] and _same(value, one.get("default"))
            allowed[name] = [_listed(value, one)] + [""] * free
        elif "default" in one:
            allowed[name] = [_listed(one["default"], one), ""]
    return allowed


def _same(value: object, default: object) -> bool:
    return type(value) is type(default) and value == default


def _listed(value: Any, one: JsonObject) -> Any:
    """Return a value as gold has it: dicts, also those in lists, list each key's values."""
    if is_object(value):
        free = {key: [inner] for key, inner in value.items()}
        return _allowed(value, one) if "properties" in one else free
    if is_list(value) and one["items"]["type"] == "dict":
        return [_listed(item, one["items"]) for item in value]
    return value
