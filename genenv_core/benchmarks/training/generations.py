"""Reads generations of training tasks that are one JSON object, for several benchmarks."""

from __future__ import annotations

import json
from typing import cast

from genenv_core.domains.tool_calls import parsed
from genenv_core.types import JsonObject, Rejected, Rejection

FENCES = ("```json", "```")


def read_object(text: str, fields: frozenset[str]) -> JsonObject | Rejected:
    """Return the JSON object of a generation, with exactly these fields; never raises.

    It takes off the fence that models like to put around JSON.
    """
    bare = text.strip()
    for fence in FENCES:
        bare = bare.removeprefix(fence)
    value = parsed(bare.removesuffix(FENCES[-1]))
    if not isinstance(value, dict):
        return Rejected(Rejection.UNPARSEABLE, f"no JSON object: {bare[:60]!r}")
    record = cast(JsonObject, value)
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return Rejected(Rejection.UNPARSEABLE, "it has half of a character")
    wrong = sorted(fields.symmetric_difference(record))
    if wrong:
        named = ", ".join(repr(name[:40]) for name in wrong[:5])
        return Rejected(
            Rejection.UNPARSEABLE, f"fields {named} are missing or too many: {sorted(fields)}"
        )
    return record
