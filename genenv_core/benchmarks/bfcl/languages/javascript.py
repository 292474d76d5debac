"""Reads JavaScript source text as Python values, by the type that a function's description names.

As for Java, it reads exactly what the official converter reads (bfcl-eval 2026.3.23), in bounded
time. That one knows no grammar: an object ends at its first closing brace, and every comma ends an
element of an array.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Any

from genenv_core.benchmarks.bfcl.faults import Uncheckable
from genenv_core.benchmarks.bfcl.languages.java import LONGEST, number_or_text, whole

_INTEGER = re.compile(r"-?\d+$")
_FLOAT = re.compile(r"-?\d+(?:\.\d+)?$")
_BIGINT = re.compile(r"-?\d+n$")
_TRUTH = {"true": True, "false": False}

_LIST = re.compile(r"\[([^\]\n]*)\]|new\s+Array\(([^)\n]*)\)")
_ROWS = re.compile(r"(?:(\[)|new\s+Array\()\s*\[")
_ROW = re.compile(r"\[([^\]\n]*)\]")
_NEXT_ROW = re.compile(r"\s*,\s*\[")
_OBJECT = re.compile(r"\{([^}\n]*)\}")
# A value ends at a comma after which a colon comes before the next comma.
_PAIR = re.compile(r"([^:]++):\s*(.*?)(?:,\s*(?=[^,][^,:]*+:)|$)")


def javascript_value(text: str, kind: str, element: str | None = None) -> Any:
    """Return the value of a JavaScript expression of a type, or the text if it has another type.

    `element` is the type of an array's elements. Raises Uncheckable for a type or a number that the
    official converter raises on.
    """
    match kind:
        case "any":
            return text
        case "String":
            return text[1:-1] if _quoted(text) else text
        case "integer":
            return whole(text) if _INTEGER.match(text) else text
        case "float":
            return float(text) if _FLOAT.match(text) else text
        case "Bigint":
            # A line feed at the end leaves the n in place, and that text is no number.
            return whole(text[:-1]) if _BIGINT.match(text) else text
        case "Boolean":
            return _TRUTH.get(text, text)
        case "array" | "dict" if len(text) > LONGEST:
            return text
        case "array":
            return _array(text.strip(), element)
        case "dict":
            return _object(text.strip())
        case _:
            raise Uncheckable(f"the official converter does not read JavaScript's {kind}")


def _array(code: str, element: str | None) -> list[Any] | str:
    end = _rows_end(code)
    if end:
        return [_row(index, row) for index, row in enumerate(_ROW.findall(code[:end]))]
    found = _LIST.match(code)
    if not found:
        return code
    inside = (found[1] if found[1] is not None else found[2]).strip()
    try:
        return [_element(one.strip(), element) for one in inside.split(",") if inside]
    except Uncheckable:
        return code


def _element(text: str, element: str | None) -> Any:
    return javascript_value(text, element) if element else _literal(text)


def _row(index: int, inside: str) -> list[Any]:
    inside = inside.strip()
    # The first row's text begins with the outer bracket when no space is between the two.
    first = index == 0 and inside.startswith("[")
    return [_literal(one) for one in inside[first:].split(",")]


def _rows_end(code: str) -> int:
    """Return the end of an array of arrays at the start of a text, 0 without one.

    A row is brackets around any text on one line, even with brackets in it. Each closing bracket
    may end it, and the first after which the rest of the array is readable does. `ends` has the end
    of the array for each such bracket. The loop fills it from the right, with one look at each.
    """
    head = _ROWS.match(code)
    if not head:
        return 0
    after = re.compile(r"\s*\]" if head[1] else r"\s*\)")
    good: list[int] = []
    ends: dict[int, int] = {}

    def first_good(start: int) -> int:
        """Return the end by the first good bracket from `start` on, on its line; else 0."""
        # `good` descends, so that its negatives are in order.
        index = bisect_right(good, -start, key=lambda place: -place) - 1
        if index < 0 or "\n" in code[start : good[index]]:
            return 0
        return ends[good[index]]

    for place in range(len(code) - 1, head.end() - 1, -1):
        if code[place] != "]":
            continue
        following = _NEXT_ROW.match(code, place + 1)
        closing = after.match(code, place + 1)
        end = first_good(following.end()) if following else closing.end() if closing else 0
        if end:
            good.append(place)
            ends[place] = end
    return first_good(head.end())


def _object(code: str) -> dict[str, Any] | str:
    found = _OBJECT.match(code)
    if not found:
        return code
    pairs: list[tuple[str, str]] = _PAIR.findall(found[1])
    return {key.strip().strip("'\""): _property(value.strip()) for key, value in pairs}


def _property(text: str) -> Any:
    if text.startswith("[") and text.endswith("]"):
        return _array(text, None)
    return _literal(text.strip("'\""))


def _literal(text: str) -> Any:
    """Return the value of a JavaScript literal of unknown type."""
    text = text.strip()
    if text in _TRUTH:
        return _TRUTH[text]
    return text[1:-1] if _quoted(text) else number_or_text(text)


def _quoted(text: str) -> bool:
    return any(text.startswith(mark) and text.endswith(mark) for mark in "\"'")
