"""Reads sizes as people write them."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(I?))?B?", re.I)


def bytes_in(text: str) -> int | None:
    """Return the bytes in a text like 512MB (of 1000) or 4GiB (of 1024); None for no size."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    power = " KMGT".index((match[2] or " ").upper())
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)
