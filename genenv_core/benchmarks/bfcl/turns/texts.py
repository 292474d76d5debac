"""Reads texts as calls with literal arguments, and never evaluates them.

The official executor first writes an instance's name before every method's name that a parenthesis
follows, inside quoted texts too, and drops the blanks between any name and its parenthesis. Values
that a call stores show that, so this module does the same. The executor then evaluates the text as
Python; here it is a call of a method with literals, or an error.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LONGEST = 100_000
"""Most characters of a call; gold's longest has 6,839."""

_CALLED = re.compile(r"(?<!\w)([A-Za-z_]\w*)\s*(?=\()")


class NoCall(ValueError):
    """A text is no call with literal arguments."""


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call as in its text; `addressed` has put the name `instance` there."""

    instance: str
    method: str
    arguments: list[Any]
    named: dict[str, Any]


def addressed(text: str, instances: Mapping[str, str]) -> str:
    """Return a text with the instance before each method called; `instances` are by method."""

    def of(match: re.Match[str]) -> str:
        name = match[1]
        return f"{instances[name]}.{name}" if name in instances else name

    return _CALLED.sub(of, text)


def read_call(text: str) -> WrittenCall:
    """Return the one call `instance.method(...)` of a text; raises NoCall for anything else."""
    if len(text) > LONGEST:
        raise NoCall(f"more than {LONGEST} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes such as \d, which Python still reads
            body = ast.parse(text.lstrip(" \t"), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NoCall(f"no Python expression: {type(error).__name__}") from error
    match body:
        case ast.Call(ast.Attribute(ast.Name(instance), method), arguments, keywords):
            names = [one.arg for one in keywords]
            if len(set(names)) < len(names):
                raise NoCall("an argument is named twice")
            named = {one.arg: _literal(one.value) for one in keywords if one.arg is not None}
            if len(named) < len(names):
                raise NoCall("arguments are unpacked")
            return WrittenCall(instance, method, [_literal(one) for one in arguments], named)
        case ast.Call(ast.Name(name)):
            raise NoCall(f"no function {name!r}")
        case _:
            raise NoCall("no single call of a function by its name")


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise NoCall("an argument is no literal") from error
