"""Hides marks of a model's own format inside of the strings of its calls.

A response template of transformers ends a call at the first text that looks like its end, also
inside of a string. `shielded` puts other characters in the place of such marks before the parser
runs, and returns a function that puts them back into the parsed values.
"""

from __future__ import annotations

import json
import re
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from genenv_core.types import JsonObject

Span = tuple[int, int]

_THOUGHT = re.compile("</?think>")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_PRIVATE = range(0xF0000, 0xFFF00, 0x80)
"""Code points of private use, in blocks as long as ASCII."""


def shielded(text: str, template: Mapping[str, Any]) -> tuple[str, Callable[[Any], Any]]:
    """Return a text whose calls end only at their ends, and a function that restores values."""
    from transformers.utils.chat_parsing import response_templates

    loading: Any = response_templates  # half untyped
    fields: Mapping[str, Any] = loading.load_response_template(dict(template)).fields
    calls = fields.get("tool_calls")
    if calls is None or calls.open_re is None:
        return text, lambda value: value
    spans = list(_strings(text, calls))
    ends = [field.close_re for field in fields.values() if field.close_re is not None]
    places = {
        place
        for pattern in [*ends, _THOUGHT]
        for place in _matches(pattern, text)
        if _inside(place, spans) and text[place].isascii()
    }
    if not places:
        return text, lambda value: value
    used = set(text)
    base = next((b for b in _PRIVATE if used.isdisjoint(map(chr, range(b, b + 0x80)))), 0)
    letters = [chr(base + ord(c)) if i in places else c for i, c in enumerate(text)]
    back = {base + code: code for code in range(0x80)}
    return "".join(letters), lambda value: _restored(value, back)


def _matches(pattern: Any, text: str) -> Iterator[int]:
    """Yield where a pattern matches, also where matches overlap."""
    found = pattern.search(text)
    while found is not None and found.start() < len(text):
        yield found.start()
        found = pattern.search(text, found.start() + 1)


def _inside(place: int, spans: list[Span]) -> bool:
    index = bisect(spans, place, key=lambda span: span[0]) - 1
    return index >= 0 and spans[index][0] <= place < spans[index][1]


def _strings(text: str, calls: Any) -> Iterator[Span]:
    """Yield the places of the strings in the calls of a text, in order."""
    end = 0
    while (opened := calls.open_re.search(text, end)) is not None:
        end = opened.end()
        for span in _READERS[_kind(calls)](text, end, calls):
            yield span
            end = span[1]
        if end == opened.start():
            return


def _kind(calls: Any) -> str:
    delimited = calls.content == "json" and calls.content_args.get("string_delims")
    return "delimited" if delimited else str(calls.content)


def _of_json(text: str, begin: int, calls: Any) -> Iterator[Span]:
    try:
        start = next((i for i in range(begin, len(text)) if not text[i].isspace()), begin)
        _, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return
    for string in _STRING.finditer(text, begin, end):
        yield string.span()


def _of_delimited(text: str, begin: int, calls: Any) -> Iterator[Span]:
    delimiters = [map(re.escape, pair) for pair in calls.content_args["string_delims"]]
    either = "|".join(".*?".join(pair) for pair in delimiters)
    yield from _until_closed(text, begin, calls, re.compile(either, re.DOTALL), 0)


def _of_tags(text: str, begin: int, calls: Any) -> Iterator[Span]:
    tags = re.compile(calls.content_args["tag_pattern"], re.DOTALL)
    yield from _until_closed(text, begin, calls, tags, "value")


def _until_closed(
    text: str, begin: int, calls: Any, pattern: Any, group: str | int
) -> Iterator[Span]:
    while (found := pattern.search(text, begin)) is not None:
        closed = calls.close_re and calls.close_re.search(text, begin)
        if closed and closed.start() < found.start():
            return
        yield found.span(group)
        begin = max(found.end(), begin + 1)


_READERS: Mapping[str, Callable[[str, int, Any], Iterator[Span]]] = {
    "json": _of_json,
    "delimited": _of_delimited,
    "xml-inline": _of_tags,
}


def _restored(value: Any, back: Mapping[int, int]) -> Any:
    if isinstance(value, str):
        return value.translate(back)
    if isinstance(value, dict):
        items = cast(JsonObject, value).items()
        return {_restored(key, back): _restored(inner, back) for key, inner in items}
    if isinstance(value, list):
        return [_restored(inner, back) for inner in cast(list[Any], value)]
    return value
