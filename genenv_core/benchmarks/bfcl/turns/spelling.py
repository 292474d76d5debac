"""A model's call as the text that a multi-turn prediction has of it.

A reader gets the same call back, or no call: a name or an argument that Python has no
word for is written so that no reader takes it for another one.
"""

from __future__ import annotations

from genenv_core.types import Call

UNWRITABLE = "call(*)"
"""Stands for a call whose arguments have no text, such as those nested too deep; it is no call."""


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
    # Python takes some other letters for these: they would be another name.
    return name.isascii() and name.isidentifier()
