"""Hides passwords, keys and tokens from people, and replaces characters without a shape."""

from __future__ import annotations

import re
import unicodedata
from typing import Any, cast

from genenv_core.types import JsonObject

HIDDEN = "(hidden)"

SHAPELESS = ("Cc", "Cf")
"""Unicode categories without a shape; in a model's text they could hide or steer other text."""

_NAMES = r"password|passwd|secret|token{end}|api_?key|credential|authorization"
_SECRET = re.compile(_NAMES.format(end="$"), re.I)
_USERINFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")

_GIVEN = re.compile(
    rf"(?P<name>(?:{_NAMES.format(end='(?![a-z])')})\w*[\"']?\s*[=:]\s*[\"']?)"
    r"(?:(?:bearer|basic)\s+)?[^\s\"'&,;]+",
    re.I,
)
"""A name of something secret, followed by its value, as logs, headers and URLs write both."""

_KEYS = re.compile(
    r"\b(?:hf_|sk-|gh[pousr]_|github_pat_|glpat-|AKIA|ASIA|xox[abprs]-|eyJ)[\w.-]{10,}"
    r"|(?<=bearer )\S+",
    re.I,
)
"""Keys with a known beginning."""


def names_secret(name: str) -> bool:
    """Return whether a name is that of something secret."""
    return _SECRET.search(name) is not None


def without_secrets(value: Any) -> Any:
    """Return a configuration with passwords, keys and the user part of URLs hidden."""
    if isinstance(value, dict):
        return {
            key: HIDDEN if _SECRET.search(key) and item else without_secrets(item)
            for key, item in cast(JsonObject, value).items()
        }
    if isinstance(value, list):
        return [without_secrets(item) for item in cast(list[Any], value)]
    return _USERINFO.sub(HIDDEN, value) if isinstance(value, str) else value


def words_without_secrets(words: str) -> str:
    """Return a text, such as a log, without what looks like a password, a key or a token.

    It knows names before a value (`HF_TOKEN=...`, `Authorization: Bearer ...`), the user part of
    URLs, and keys by their beginning. A secret in any other form stays.
    """
    named = _GIVEN.sub(rf"\g<name>{HIDDEN}", _USERINFO.sub(HIDDEN, words))
    return _KEYS.sub(HIDDEN, named)


def visible(text: str) -> str:
    """Return a model's text; replaces characters that hide, reorder or steer other text."""
    return "".join(
        char
        if char in "\n\t" or unicodedata.category(char) not in SHAPELESS
        else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )
