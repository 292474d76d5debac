"""Writes an OpenEnv server's answer as the agent reads it."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from genenv_core.domains.kit.served.client import ServerAnswer, as_object
from genenv_core.domains.kit.tools import ERROR, told
from genenv_core.errors import one_line
from genenv_core.types import JsonObject

LONGEST_ERROR = 300
"""Most characters of a tool's error that the agent reads."""


def tell(answer: ServerAnswer, hidden: Collection[str]) -> str:
    """Return an answer as text: a single field without its name, several by name.

    Of a tool's result it returns just the texts. It shows metadata only where the observation has
    nothing to show, and never shows the fields in `hidden`.
    """
    observation = answer.observation
    if {"tool_name", "result"} <= observation.keys():
        return _of_tool(observation)
    return _fields(observation, {"metadata", *hidden}) or _fields(answer.metadata, hidden)


def _fields(values: JsonObject, hidden: Collection[str]) -> str:
    shown = {name: one for name, one in values.items() if name not in hidden and one is not None}
    if len(shown) == 1:
        return told(next(iter(shown.values())))
    return "\n".join(f"{name}: {told(one)}" for name, one in shown.items())


def _of_tool(observation: JsonObject) -> str:
    """Return the texts of an MCP tool's result, or its value where it has no text."""
    if error := as_object(observation.get("error")):
        return f"{ERROR} {one_line(error.get('message', ''), LONGEST_ERROR)}"
    result = observation["result"]
    content = as_object(result).get("content")
    blocks = cast("list[object]", content) if isinstance(content, list) else []
    texts = [str(as_object(one)["text"]) for one in blocks if "text" in as_object(one)]
    if not texts:
        return told(as_object(result).get("data", result))
    said = "\n".join(texts)
    return f"{ERROR} {said}" if as_object(result).get("is_error") else said
