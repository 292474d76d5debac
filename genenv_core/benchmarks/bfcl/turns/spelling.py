"""Writes a model's call as text for a multi-turn prediction.

A reader gets the same call back, or no call: the text of a name or an argument that is no word of
Python cannot pass for another one.
"""

from __future__ import annotations

from genenv_core.types import Call

UNWRITABLE = "call(*)"
"""Stands for a call whose arguments have no text, such as too deep ones; no reader takes it."""


def spelled(call: Call) -> str:
    """Return `name(argument=literal, ...)`; never raises."""
    try:
        if not all(map(_is_word, call.arguments)):
            return f"{_name(call.name)}(**{call.arguments!r})"
        arguments = ", ".join(f"{key}={value!r}" for key, value in call.arguments.items())
        return f"{_name(call.name)}({arguments})"
    except (ValueError, RecursionError, MemoryError):  # no integer of 5,000 digits has a text
        return UNWRITABLE


def _name(name: str) -> str:
    return name if _is_word(name) else repr(name)


def _is_word(name: str) -> bool:
    # Python turns some other letters into ASCII: they would make another name.
    return name.isascii() and name.isidentifier()
