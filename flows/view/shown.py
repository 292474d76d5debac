"""Values as pages show them."""

from __future__ import annotations

import math
from datetime import date, datetime
from typing import Any, cast
from urllib.parse import quote

from markupsafe import Markup, escape

from genenv_core.play.transcript import visible
from genenv_core.report.data import without_secrets
from genenv_core.report.page import number

LONGEST = 400
"""Letters of a text that a table shows; the page of the row shows all of it."""

SHORT = 44
"""Letters of a text that stays on one line."""

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
        return ", ".join(shown(item) for item in cast(list[Any], value))
    text = visible(str(value))
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def cell(value: Any, column: str = "", run: str = "") -> Markup:
    """Return a value as a cell of a table: numbers to the right, ids as links to their pages."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    said = escape(shown(value))
    if value is not None and (place := _place(str(value), column, run)):
        said = Markup('<a href="{}">{}</a>').format(place, said)
    kind = "n" if is_number else "s" if len(str(value)) <= SHORT else "t"
    return Markup('<td class="{}">{}</td>').format(kind, said)


def setting(value: Any, name: str) -> Any:
    """Return the value of a setting, hidden where its name says that it is secret."""
    last = name.rsplit(".", 1)[-1]
    return without_secrets({last: value})[last]


def segment(text: object) -> str:
    """Return a text as one part of a path."""
    return quote(str(text), safe="")


def _place(value: str, column: str, run: str) -> str:
    """Return the page of what an id names, '' for what has none."""
    if column in ("run_id", "computed_by", "branch_of"):
        return f"/runs/{segment(value)}"
    if column in ("task_id", "trace_id") and run:
        kind = "tasks" if column == "task_id" else "traces"
        return f"/runs/{segment(run)}/{kind}/{segment(value)}"
    return ""


def colour_of(index: int) -> str:
    """Return the name of a line's or group's colour."""
    return f"s{index % COLOURS}"
