"""Values as pages show them."""

from __future__ import annotations

import math
from datetime import date, datetime
from typing import Any, cast
from urllib.parse import quote

from markupsafe import Markup, escape

from genenv_core.addresses import path_of
from genenv_core.hiding import without_secrets
from genenv_core.play.transcript import visible
from genenv_core.report.words import number

LONGEST = 400
"""Letters of a text that a table shows; the page of the row shows all of it."""

SHORT = 44
"""Letters of a text that stays on one line."""

RUNS = ("run_id", "computed_by", "branch_of")
BELOW = {"task_id": "tasks", "base_task_id": "tasks", "trace_id": "traces"}
"""Columns whose values have pages: those of runs, and those below a run."""

DIGESTS = ("digest", "parent_digest", "checkpoint", "agent_checkpoint")
"""Columns whose values a table shortens; their title has the whole."""

DIGITS = 8
"""Letters of a digest that tell it from others of a run."""

COLOURS = 7
"""Colours of lines and groups; the style sheet names them s0, s1 and so on."""


def shown(value: Any) -> str:
    """Return any value of a result as text, '' for null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value) if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return number(value)
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return _cut(", ".join(shown(item) for item in cast(list[Any], value[: LONGEST + 1])))
    return _cut(str(value))


def _cut(text: str) -> str:
    """Return the beginning of a text, what has no shape replaced; the rest is not looked at."""
    return visible(text[:LONGEST]) + ("…" if len(text) > LONGEST else "")


def cell(value: Any, column: str = "", run: str = "") -> Markup:
    """Return a value as a cell of a table: numbers to the right, ids as links to their pages."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    kind = "n" if is_number else "s" if len(shown(value)) <= SHORT else "t"
    return Markup('<td class="{}">{}</td>').format(kind, linked(value, column, run))


def short(value: Any, column: str) -> Markup | str:
    """Return a value as text; a digest as its beginning, with the whole as its title."""
    said = shown(value)
    if column not in DIGESTS or len(said) <= DIGITS:
        return said
    return Markup('<code title="{}">{}</code>').format(said, said[:DIGITS])


def linked(value: Any, column: str, run: str) -> Markup:
    """Return a value as text, an id as a link to the page of what it names."""
    said = escape(shown(value))
    place = _place(str(value), column, run) if said and len(said) < LONGEST else ""
    return Markup('<a href="{}">{}</a>').format(place, said) if place else said


def setting(value: Any, name: str) -> Any:
    """Return the value of a setting, hidden where its name says that it is secret."""
    last = name.rsplit(".", 1)[-1]
    return without_secrets({last: value})[last]


def segment(text: object) -> str:
    """Return a text as one part of a path."""
    return quote(str(text), safe="")


def _place(value: str, column: str, run: str) -> str:
    """Return the page of what an id names, '' for an id without a page."""
    if column in RUNS:
        return path_of(value)
    if column in BELOW and run:
        return path_of(run, BELOW[column], value)
    return ""


def colour_of(index: int) -> str:
    """Return the name of a line's or group's colour."""
    return f"s{index % COLOURS}"
