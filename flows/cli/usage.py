"""Says what is wrong with the words of a command, in one line like every other error."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import typer
from pydantic import ValidationError

from genenv_core.machine.wrong_values import closest, refusal

CHOICE = "value_error"
"""The type that pydantic gives an error about a value outside of an option's choices."""


def usage_line(error: Exception) -> str | None:
    """Return what is wrong and what to do, for an error of Typer's own; None for another one.

    Help, which Typer raises as well where a command has no argument, is None.
    """
    kind = type(error).__name__
    format_message: Callable[[], str] | None = getattr(error, "format_message", None)
    if format_message is None or kind == "NoArgsIsHelpError":
        return None
    context: Any = getattr(error, "ctx", None)
    said = format_message().removesuffix(".")
    more = ""
    if context is not None:
        said = _said(error, kind, said, context)
        command = context.command_path.removeprefix(context.find_root().command_path).strip()
        said = f"{command}: {said}" if command else said
        more = f" (`{context.command_path} -h` shows how)"
    elif option := getattr(error, "option_name", None):
        wants = "needs a value behind it" if "requires" in said else "takes no value: leave it out"
        said = f"{option} {wants}"
    return f"{said}{more}"


def _said(error: Exception, kind: str, said: str, context: Any) -> str:
    """Return what is wrong with the words of one command; `said` is what Typer says of it."""
    if isinstance(error, typer.BadParameter) and isinstance(error.__cause__, ValidationError):
        return f"{_name(error.param)}: {_refused(error.param, error.__cause__.errors()[0])}"
    if kind == "MissingParameter":
        return f"{_name(getattr(error, 'param', None))} is missing: give it"
    if kind == "NoSuchOption":
        near = sorted(getattr(error, "possibilities", None) or ())
        meant = f" (did you mean {' or '.join(near)}?)" if near else ""
        return f"there is no option {getattr(error, 'option_name', '')}{meant}"
    if found := re.match("No such command '(.*?)'", said):
        return f"there is no command {found[1]!r}{closest(found[1], context.command.commands)}"
    if found := re.match(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", said):
        return f"{found[1]!r} is more than it takes: leave it out, or quote a text with spaces"
    return f"{said[:1].lower()}{said[1:]}"


def _refused(param: Any, item: Any) -> str:
    """Return what an option expects, and what it was given."""
    choices = param.type_descriptor.choices if param is not None else None
    if item["type"] != CHOICE or not choices:
        return refusal(item)
    known = [str(choice) for choice in choices]
    return f"expected {', '.join(known)}, got {item['input']!r:.200}{closest(item['input'], known)}"


def _name(param: Any) -> str:
    """Return an option as people write it, or an argument as the help names it."""
    if param is None:
        return "a value"
    names = [one for one in param.opts if one.startswith("-")]
    return max(names, key=len) if names else (param.metavar or param.name).upper()
