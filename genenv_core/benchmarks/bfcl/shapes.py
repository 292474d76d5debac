"""Says whether a JSON value is a list or an object, in a form for type checkers."""

from __future__ import annotations

from typing import Any, TypeGuard

from genenv_core.types import JsonObject


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Return whether a value is a list."""
    return isinstance(value, list)


def is_object(value: object) -> TypeGuard[JsonObject]:
    """Return whether a value is a JSON object."""
    return isinstance(value, dict)
