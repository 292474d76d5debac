"""Control tokens that a text spells out, marked so that their letters are encoded and not they.

transformers takes what stands between two private characters for text
(`encode_marked_chat`); a single one of them parts the text there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, cast

from genenv_core.types import JsonObject

START, END = "\U000f0000", "\U000f0001"
"""The private characters; a text that holds a control token loses its own ones."""


class Marker:
    """Marks these tokens in texts.

    `is_text` says whether the letters of a token can be encoded together without giving the token:
    the models of some tokenizers have it too. Otherwise they are encoded in two parts.
    """

    def __init__(self, tokens: Iterable[str], is_text: Callable[[str], bool]) -> None:
        # The longest first, so that a token counts before those that it contains.
        ordered = sorted(tokens, key=lambda token: (-len(token), token))
        self._found = re.compile("|".join(map(re.escape, ordered)) or "(?!)")
        self._is_text = lru_cache(is_text)

    def _spelt(self, found: re.Match[str]) -> str:
        token = found[0]
        return f"{START}{token}{END}" if self._is_text(token) else f"{token[0]}{START}{token[1:]}"

    def __call__(self, value: Any) -> Any:
        """Return a JSON value with the tokens marked, in its keys too."""
        if isinstance(value, str):
            if not self._found.search(value):
                return value
            plain = value.replace(START, "").replace(END, "")
            return self._found.sub(self._spelt, plain)
        if isinstance(value, dict):
            items = cast(JsonObject, value).items()
            return {self(key): self(inner) for key, inner in items}
        if isinstance(value, list | tuple):
            return [self(inner) for inner in cast("list[Any]", value)]
        return value
