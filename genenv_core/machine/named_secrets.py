"""Secrets by reference: a configuration names an environment variable, and never holds a key."""

from __future__ import annotations

import os
import re
from typing import Any, cast

ADDRESS = r"https?://[^\s/?#@]+(/[^\s?#]*)?"
"""Form of an address: without a user, a password or a query, which could hold a key."""

REFERENCES = ("key_env", "key_header", "key_over_http")
"""Options of environments' servers that say where a key is and how to send it: in no stage key."""


def checked_variable(name: str | None) -> str | None:
    """Return the name of a variable; raises ValueError for an invalid one.

    The error does not repeat it, as it may be the key itself.
    """
    if name is not None and not re.fullmatch("[A-Z_][A-Z0-9_]*", name):
        raise ValueError(
            "key_env is the name of an environment variable, such as OPENAI_API_KEY, never a "
            "key: put the key into that variable"
        )
    return name


def secrets_named(value: Any) -> dict[str, str]:
    """Return the variables that options of a domain name for keys, with their values."""
    if isinstance(value, list):
        found = [secrets_named(one) for one in cast("list[Any]", value)]
        return {name: held for one in found for name, held in one.items()}
    if not isinstance(value, dict):
        return {}
    given = cast("dict[str, Any]", value)
    named = given.get("key_env")
    own = {named: secret_in(named)} if isinstance(named, str) else {}
    return {**own, **secrets_named(list(given.values()))}


def secret_in(variable: str) -> str:
    """Return the value of a variable, without spaces around it; '' where it is not set."""
    return os.environ.get(variable, "").strip()
