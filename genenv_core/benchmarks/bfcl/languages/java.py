"""Reads Java source text as Python values, by the type that a function's description names.

It reads exactly what the official converter reads (bfcl-eval 2026.3.23). That one looks for certain
expressions by their text and knows no grammar, so it cuts elements at every comma, and leaves all
unknown expressions as text. Its patterns take time without bound on some texts. Here each is at
most quadratic, and a text longer than LONGEST holds no collection.
"""

from __future__ import annotations

import re
from typing import Any

from genenv_core.benchmarks.bfcl.faults import Uncheckable

LONGEST = 10_000
"""Most characters of a text that may hold a collection; gold's have less than 300."""

_DECIMAL = r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
# `$` also stands before a line feed at the end, which the official patterns allow as well.
_INTEGER = re.compile(r"-?\d+$")
_LONG = re.compile(r"-?\d+[lL]$")
_FLOAT = re.compile(rf"{_DECIMAL}[fF]$")
_DOUBLE = re.compile(rf"{_DECIMAL}$")
_TRUTH = {"true": True, "false": False}

_NEW_LIST = r"new\s+ArrayList<\w*>\("
_AS_LIST = re.compile(rf"{_NEW_LIST}Arrays\.asList\((.+?)\)\)")
_ADDED_LIST = re.compile(rf"{_NEW_LIST}\)\s*\{{\{{\s*")
_EMPTY_LIST = re.compile(rf"{_NEW_LIST}\)")
_ADDED = re.compile(r"add\((.+?)\)")
_ARRAY = re.compile(r"new\s+\w+\[\]\s*\{([^}\n]*)\}")
_FILLED_MAP = re.compile(r"new\s+HashMap<.*?>\s*\(\)\s*\{\s*\{?\s*", re.DOTALL)
_EMPTY_MAP = re.compile(r"new\s+HashMap<.*?>\s*\(\)")
_PUT = 'put("'
_PUT_VALUE = re.compile(r"\",\s*+([^)\n]*+)\)")


def java_value(text: str, kind: str, element: str | None = None) -> Any:
    """Return the value of a Java expression of a type, or the text itself if it has another type.

    `element` is the type of a collection's elements. Raises Uncheckable for a type or a number that
    the official converter raises on.
    """
    match kind:
        case "String" | "any" | "char":
            return text
        case "byte" | "short" | "integer":
            return whole(text) if _INTEGER.match(text) else text
        case "long":
            return whole(text.rstrip("\n")[:-1]) if _LONG.match(text) else text
        case "float":
            return float(text.rstrip("\n")[:-1]) if _FLOAT.match(text) else text
        case "double":
            return float(text) if _DOUBLE.match(text) else text
        case "boolean":
            return _TRUTH.get(text, text)
        case "ArrayList" | "Array" | "HashMap" if len(text) > LONGEST:
            return text
        case "ArrayList":
            return _array_list(text, element)
        case "Array":
            return _array(text, element)
        case "HashMap":
            return _hash_map(text)
        case _:
            raise Uncheckable(f"the official converter does not read Java's {kind}")


def whole(digits: str) -> int:
    """Return an integer; raises Uncheckable for more digits than Python converts."""
    try:
        return int(digits)
    except ValueError as error:
        raise Uncheckable(f"an integer of {len(digits)} digits") from error


def number_or_text(text: str) -> int | float | str:
    """Return the number that Python reads from a text, else the text."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _array_list(text: str, element: str | None) -> list[Any] | str:
    if found := _AS_LIST.search(text):
        return [_list_element(one.strip(), element) for one in found[1].split(",")]
    for head in _ADDED_LIST.finditer(text):
        end = text.find("}}", head.end() + 1)
        if end >= 0:
            added: list[str] = _ADDED.findall(text[head.end() : end])
            return [_list_element(one.strip(), element) for one in added]
    return [] if _EMPTY_LIST.search(text) else text


def _list_element(text: str, element: str | None) -> Any:
    # The official converter cuts off quotes unseen in an ArrayList, and keeps them in an array.
    return text[1:-1] if element in ("char", "String") else _element(text, element)


def _element(text: str, element: str | None) -> Any:
    return java_value(text, element) if element else _literal(text)


def _array(text: str, element: str | None) -> list[Any] | str:
    found = _ARRAY.search(text)
    if not found:
        return text
    return [_element(one.strip(), element) for one in found[1].split(",") if one.strip()]


def _hash_map(text: str) -> dict[str, Any] | str:
    if head := _FILLED_MAP.search(text):
        end = text.find("}", head.end())
        if end >= 0:
            return _entries(text[head.end() : end])
    return {} if _EMPTY_MAP.search(text) else text


def _entries(body: str) -> dict[str, Any]:
    """Return the entries of all `put("key", value)` in a text.

    A key ends at the first `",` on its line from which a value reaches a closing parenthesis.
    """
    marks = (_PUT_VALUE.match(body, mark.start()) for mark in re.finditer('",', body))
    ends = [mark for mark in marks if mark]
    entries: dict[str, Any] = {}
    at = next_end = 0
    while (at := body.find(_PUT, at)) >= 0:
        key = at + len(_PUT)
        while next_end < len(ends) and ends[next_end].start() < key:
            next_end += 1
        at = key
        if next_end == len(ends):
            break
        end = ends[next_end]
        if "\n" not in body[key : end.start()]:
            entries[body[key : end.start()]] = _literal(end[1].strip())
            at = end.end()
    return entries


def _literal(text: str) -> Any:
    """Return the value of a Java literal of unknown type."""
    if text in _TRUTH:
        return _TRUTH[text]
    if text.startswith('"') and text.endswith('"'):
        return text[1:-1]
    if _LONG.match(text):
        return whole(text[:-1])
    if _FLOAT.match(text):
        return float(text[:-1])
    return number_or_text(text)
