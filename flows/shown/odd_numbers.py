"""Numbers that JSON does not have: NaN and infinities by name, decimals with all their digits."""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, cast


def written(value: Any, *, default: Callable[[Any], Any] | None = None, **form: Any) -> str:
    """Return a value as JSON in which decimals are numbers with all their digits."""
    mark = secrets.token_hex(16)  # that no text of the value holds

    def as_text(other: Any) -> Any:
        if isinstance(other, Decimal):
            return f"{mark}{other:f}"
        return default(other) if default else other

    text = json.dumps(value, default=as_text, **form)
    return re.sub(f'"{mark}([^"]*)"', r"\1", text)


def with_odd(written: Any, value: Any) -> Any:
    """Return a value as text, with names in the places of odd numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Decimal):
        return value
    if isinstance(value, list | tuple):
        both = zip(written, cast("Sequence[Any]", value), strict=True)
        return [with_odd(inner, own) for inner, own in both]
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {str(key): with_odd(written[key], own) for key, own in items}
    return written
