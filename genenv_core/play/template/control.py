"""Splits control tokens that a text spells out, so that the tokenizer encodes their letters.

Before a template is rendered, each such token gets a private character inside of it. `encoded` then
encodes the rendered text in parts, and no part holds the token. transformers can do the same for
all messages alike (`sanitize_control_tokens`); here the marks of calls stay tokens where the agent
wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from genenv_core.types import JsonObject

BREAK = "\U000f0000"
"""The private character; a text that spells a control token loses any of its own."""


def special_ids(tokenizer: Any) -> set[int]:
    """Return the ids of special tokens, also of those that only `tokenizer.json` calls special."""
    added = tokenizer.added_tokens_decoder.items()
    return {*map(int, tokenizer.all_special_ids), *(index for index, one in added if one.special)}


class Breaker:
    """Breaks these tokens in texts; it leaves tokens of one character, which have no inside."""

    def __init__(self, tokens: Iterable[str]) -> None:
        found = sorted(token for token in tokens if len(token) > 1)
        self._found = re.compile("|".join(map(re.escape, found)) or "(?!)")

    def __call__(self, value: Any) -> Any:
        """Return a JSON value with the tokens broken, in its keys too."""
        if isinstance(value, str):
            return self._broken(value) if self._found.search(value) else value
        if isinstance(value, dict):
            items = cast(JsonObject, value).items()
            return {self(key): self(inner) for key, inner in items}
        if isinstance(value, list | tuple):
            return [self(inner) for inner in cast("list[Any]", value)]
        return value

    def _broken(self, text: str) -> str:
        """Return a text with a break behind the first letter of each token."""
        text = text.replace(BREAK, "")
        parts: list[str] = []
        start = 0
        while match := self._found.search(text, start):
            parts.append(text[start : match.start() + 1])
            start = match.start() + 1
        return BREAK.join([*parts, text[start:]])


def encoded(text: str, encode: Callable[[str], Sequence[int]]) -> tuple[int, ...]:
    """Return the ids of a text, each part between its breaks encoded on its own."""
    first, *rest = text.split(BREAK)
    ids = [*encode(first)]
    # Behind a line break, since SentencePiece puts a blank before what begins a text.
    line = encode("\n") if rest else ()
    for part in rest:
        behind = encode(f"\n{part}")
        ids += behind[len(line) :] if behind[: len(line)] == line else encode(part)
    return tuple(ids)
