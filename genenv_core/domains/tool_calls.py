"""How a policy writes tool calls into its text, and the optional ReadsCalls protocol.

`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, as Hermes and Qwen models write it. No
other module knows these marks. A domain with another syntax implements `ReadsCalls`.

A mark inside of a JSON string is part of the string: it ends no call and no thought. This module
writes such a mark as `\\u003ctool_call>`, which every reader of JSON reads back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

from genenv_core.domains.protocol import Domain
from genenv_core.errors import DomainError
from genenv_core.types import Call, JsonObject, Said

OPEN, CLOSE = "<tool_call>", "</tool_call>"

_OPENED, _CLOSED = "<think>", "</think>"

MARKS = (OPEN, CLOSE, _OPENED, _CLOSED)
"""The marks of calls and thoughts."""

_ALONE = frozenset({"name", "arguments", "id", "type"})
"""The fields of a call without arguments; any further field may hold the arguments."""

_MARK = re.compile("<(?=/?(?:tool_call|think)>)")

_QUOTED = re.compile(rf'([^"<\\]*+(?:"(?:[^"\\]|\\.)*+"[^"<\\]*+)*+){CLOSE}', re.DOTALL)
"""A call's body that may be JSON: `<` and backslashes stand in its strings alone.

The time is linear in the whole text: of two searches that begin at different marks, one is inside
of a string where the other one is not, so one of them ends at the next mark.
"""


@dataclass(frozen=True, slots=True)
class SaidCall:
    """One tool call in the text of an agent's turn.

    `start` and `end` are its place there, in characters, marks included. `arguments` is None for a
    call that cannot be read; `name` is then the name that the text gives, or ''.
    """

    start: int
    end: int
    name: str = ""
    arguments: JsonObject | None = None


Reader = Callable[[str], Sequence[SaidCall]]
"""Returns the calls in the text of a turn."""


@runtime_checkable
class ReadsCalls(Protocol):
    """A domain whose agent writes tool calls in a form of its own.

    The caller may rely on: equal texts give equal calls, in the order in which the episode answers
    them; `read_calls` raises on no text.
    """

    def read_calls(self, text: str) -> Sequence[SaidCall]:
        """Return the calls in the text of one turn, also those that cannot be read."""
        ...


def reader_of(domain: Domain) -> Reader:
    """Return the function that reads the calls of a domain's agent.

    It raises DomainError where a domain's own `read_calls` returns anything but calls.
    """
    if not isinstance(domain, ReadsCalls):
        return calls_said
    return lambda text: _checked(text, domain.read_calls(text))


def _checked(text: str, calls: Sequence[SaidCall]) -> list[SaidCall]:
    for call in calls:
        if not isinstance(call, SaidCall):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DomainError(f"read_calls gives {str(call)[:80]!a}; give SaidCall")
        if not 0 <= call.start <= call.end <= len(text):
            raise DomainError(
                f"read_calls gives a call from {call.start} to {call.end} in a text of {len(text)} "
                "characters; start and end are places in the text"
            )
        try:
            json.dumps(call.arguments)
        except (TypeError, ValueError, RecursionError) as error:
            raise DomainError(f"read_calls: arguments of {call.name[:40]!a}: {error}") from error
    return list(calls)


def calls_said(text: str) -> list[SaidCall]:
    """Return the calls between the marks, outside of a reasoning model's thought."""
    return calls_from(text, after_thought(text))


def as_read(text: str) -> str:
    """Return a text as people read it: each call as `name(argument=value)`, on a line of its own.

    A text without a call that can be read stays as it is.
    """
    calls = [call for call in calls_said(text) if call.arguments is not None]
    if not calls:
        return text
    lines, at = list[str](), 0
    for call in calls:
        lines += [text[at : call.start].strip(), call_as_read(call.name, call.arguments or {})]
        at = call.end
    return "\n".join(filter(None, [*lines, text[at:].strip()]))


def call_as_read(name: str, arguments: JsonObject) -> str:
    """Return a call as people read it: `ship(item="gears", total=5)`."""
    given = (f"{key}={json.dumps(one, ensure_ascii=False)}" for key, one in arguments.items())
    return f"{name}({', '.join(given)})"


def after_thought(text: str) -> int:
    """Return where a text goes on after the thought of a reasoning model, 0 without a thought.

    A chat template may open the thought itself, so only its end is in the text. A thought that
    never ends takes the whole text.
    """
    before, closed, _ = _masked(text).partition(_CLOSED)
    opened = before.lstrip().startswith(_OPENED)
    if not closed:
        return len(text) if opened else 0
    # A mark behind other words is something that the agent talks about.
    return len(before) + len(closed) if opened or _OPENED not in before else 0


def _masked(text: str) -> str:
    """Return a text of the same length, with blanks for the calls that are JSON."""
    if _OPENED not in text and _CLOSED not in text:
        return text
    parts: list[str] = []
    end = 0
    for one in marked(text):
        if parsed(one.body) is not None:
            parts += [text[end : one.start], " " * (one.end - one.start)]
            end = one.end
    return "".join([*parts, text[end:]])


def calls_from(text: str, begin: int) -> list[SaidCall]:
    """Return the calls between the marks from `begin` on; the last one may be unclosed."""
    found = [_said(one) for one in marked(text, begin)]
    unclosed = text.find(OPEN, found[-1].end if found else begin)
    if unclosed >= 0:
        found.append(SaidCall(unclosed, len(text), _name(parsed(text[unclosed + len(OPEN) :]))))
    return found


def _said(one: Marked) -> SaidCall:
    value = parsed(one.body)
    call = read_call(value)
    return SaidCall(one.start, one.end, _name(value), None if call is None else call.arguments)


def _name(value: object) -> str:
    name = cast(JsonObject, value).get("name") if isinstance(value, dict) else None
    return name if isinstance(name, str) else ""


@dataclass(frozen=True, slots=True)
class Marked:
    """The text between two marks, which should be JSON; its place is as in `SaidCall`."""

    start: int
    end: int
    body: str


def marked(text: str, begin: int = 0) -> Iterator[Marked]:
    """Yield the texts between the marks from `begin` on, in order, in linear time.

    A body that is JSON ends at the first closing mark outside of its strings; any other body ends
    at the first closing mark.
    """
    last = text.rfind(CLOSE) + len(CLOSE)
    start = text.find(OPEN, begin, last)
    while start >= 0:
        place = start + len(OPEN)
        json_body = _QUOTED.match(text, place, last)
        if json_body and parsed(json_body[1]) is not None:
            body = json_body[1]
        elif (end := text.find(CLOSE, place, last)) >= 0:
            body = text[place:end]
        else:
            return
        yield Marked(start, place + len(body) + len(CLOSE), body)
        start = text.find(OPEN, place + len(body) + len(CLOSE), last)


def written(call: JsonObject) -> str:
    """Return a tool call as a policy writes it."""
    return between_marks(json.dumps(call))


def between_marks(body: str) -> str:
    """Return a text as the body of a call, with its own marks escaped; the body may be no JSON."""
    return OPEN + _MARK.sub(r"\\u003c", body) + CLOSE


def read_one_call(text: str) -> JsonObject:
    """Return the one call in a text as JSON; raises DomainError for no call, and for several."""
    found = list(marked(text))
    if len(found) != 1 or OPEN in text[: found[0].start] + text[found[0].end :]:
        raise DomainError(f"make one call between {OPEN} and {CLOSE}")
    try:
        call: object = json.loads(found[0].body)
    except (ValueError, RecursionError) as error:
        raise DomainError("the call is no JSON") from error
    if not isinstance(call, dict):
        raise DomainError("the call is no JSON object")
    return cast(JsonObject, call)


def canonical(text: str, calls: Iterable[object]) -> str:
    """Return a turn in the form that policies write, from a text and calls in OpenAI's form.

    An invalid call, such as one whose arguments are no JSON, becomes a malformed one. The result
    closes what the text leaves open before a call: a thought, or another call.
    """
    made = [_written(call) for call in calls]
    before = _closed(text) if made else text
    return "\n".join([*([before] if before else []), *made])


def _closed(text: str) -> str:
    if text.lstrip().startswith(_OPENED) and _CLOSED not in _masked(text):
        text += _CLOSED
    begin = after_thought(text)
    *_, end = begin, *(one.end for one in marked(text, begin))
    return text + CLOSE if text.find(OPEN, end) >= 0 else text


def _written(call: object) -> str:
    inner = cast(JsonObject, call).get("function", call) if isinstance(call, dict) else call
    found = read_call(inner)
    if found is None:
        return between_marks(json.dumps(inner, ensure_ascii=False, default=str))
    return written({"name": found.name, "arguments": found.arguments})


def said(text: str) -> Said:
    """Return a turn's text and calls; `malformed` has what only looks like a call.

    It leaves out the thought of a reasoning model.
    """
    rest, found = in_order(text[after_thought(text) :])
    calls = tuple(call for call in found if isinstance(call, Call))
    return Said(rest, calls, tuple(call for call in found if isinstance(call, str)))


def in_order(text: str) -> tuple[str, list[Call | str]]:
    """Return a text without its calls, and the calls; an unreadable call stays as its text."""
    found: list[Call | str] = []
    rest: list[str] = []
    end = 0
    for one in calls_from(text, 0):
        rest.append(text[end : one.start])
        end = one.end
        body = text[one.start + len(OPEN) : one.end].removesuffix(CLOSE)
        found.append(body if one.arguments is None else Call(one.name, one.arguments))
    return "".join([*rest, text[end:]]).strip(), found


def read_call(value: object) -> Call | None:
    """Return the call in a parsed JSON value, None for any other value.

    Arguments are an object, or an object written as JSON text, as OpenAI-style APIs have it. A call
    has no arguments where they are missing, null, or a text that is empty or says null.
    """
    if not isinstance(value, dict):
        return None
    record = cast(JsonObject, value)
    name, arguments = record.get("name"), record.get("arguments")
    if isinstance(arguments, str):
        arguments = parsed("{}" if arguments.strip() in ("", "null") else arguments)
    elif arguments is None and record.keys() <= _ALONE:
        arguments = {}
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return Call(name, cast(JsonObject, arguments))


def parsed(text: str) -> object:
    """Return the value of a JSON text, None for any other text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
