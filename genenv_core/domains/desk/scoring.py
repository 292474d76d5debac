"""Judges a chain of tool calls: exact match after normalising call names and arguments.

Key order, blanks between and inside calls, letter case and surrounding blanks of names, `15.0` for
`15`, arguments given as a JSON string, and the `id` (a label, whatever its value) do not count. The
order of the calls, their number, and anything that is not a call do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from genenv_core.domains.tool_calls import OPEN, marked
from genenv_core.types import Verdict


@dataclass(frozen=True, slots=True)
class DeskCall:
    """One tool call, normalised."""

    name: str
    item: str
    total: int


def read_calls(text: str) -> list[DeskCall] | str:
    """Return the calls in an answer, or the name of what is wrong with it; never raises."""
    rest = text.strip()
    if OPEN not in rest:
        return "no_tool_call"
    found = list(marked(rest))
    ends = [0, *(one.end for one in found)]
    gaps = (rest[end : one.start] for end, one in zip(ends, found, strict=False))
    left = rest[ends[-1] :].lstrip()
    if any(gap.strip() for gap in gaps):
        return "extra_text"
    if left:
        cut = left.startswith(OPEN) or (found and OPEN.startswith(left))
        return "truncated" if cut else "extra_text"
    calls = [_read_call(one.body) for one in found]
    good = [call for call in calls if call is not None]
    return good if len(good) == len(calls) else "malformed_call"


def judge(text: str, expected: Sequence[DeskCall]) -> Verdict:
    """Return the verdict: reward 1.0 for the whole chain, else 0.0 and the first flaw."""
    calls = read_calls(text)
    failure = calls if isinstance(calls, str) else _first_difference(calls, expected)
    return Verdict(reward=0.0 if failure else 1.0, success=not failure, failure=failure)


def _first_difference(calls: Sequence[DeskCall], expected: Sequence[DeskCall]) -> str:
    if len(calls) != len(expected):
        return "wrong_count"
    for call, wanted in zip(calls, expected, strict=True):
        for part in ("name", "item", "total"):
            if getattr(call, part) != getattr(wanted, part):
                return f"wrong_{part}"
    return ""


def _read_call(body: str) -> DeskCall | None:
    record = _json_object(body)
    if record is None or not record.keys() <= {"id", "name", "arguments"}:
        return None
    arguments = record.get("arguments")
    if isinstance(arguments, str):
        arguments = _json_object(arguments)
    if not isinstance(arguments, Mapping):
        return None
    values = cast(Mapping[str, Any], arguments)
    if set(values) != {"item", "total"}:
        return None
    name, item, total = record.get("name"), values["item"], values["total"]
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    if not isinstance(name, str) or not isinstance(item, str):
        return None
    if isinstance(total, bool) or not isinstance(total, int):
        return None
    return DeskCall(name.strip().casefold(), item.strip().casefold(), total)


def _json_object(text: str) -> dict[str, Any] | None:
    try:
        value: object = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
