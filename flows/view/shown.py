"""Writes values as pages show them."""

from __future__ import annotations

import math
import re
from datetime import date, datetime
from typing import Any, cast
from urllib.parse import quote

from markupsafe import Markup, escape

from genenv_core.addresses import path_of
from genenv_core.hiding import visible, without_secrets
from genenv_core.report.words import number, whole

LONGEST = 400
"""Most letters of a text in a table; the page of the row shows all of it."""

SHORT = 44
"""Most letters of a text that stays on one line."""

RUNS = ("run_id", "computed_by", "branch_of")
BELOW = {"task_id": "tasks", "base_task_id": "tasks", "trace_id": "traces"}
"""Columns with ids whose pages lie below their run, and the part of the path between."""

DIGITS = 8
"""First letters of a digest that pages show: enough to tell those of one run apart."""

DIGEST = re.compile(r"[0-9a-f]{64}")
ROW = re.compile(r"([a-z])0*(\d+)-[0-9a-f]{8}-0*(\d+)(?:\.0*(\d+))?")
"""Matches the id of a row, as `genenv_core.ids` makes it: kind, epoch, stage, place and sample."""

TASK_ID = r"t\d{6,}-[0-9a-f]{8}-\d{7,}"
"""The pattern of a task's whole id, in Python's and DuckDB's form alike."""

TASK = re.compile(rf"\b({TASK_ID})\b(?!\.\d)")
"""Matches the whole id of a task within words; a text that is cut inside of an id ends in a shorter
one."""

WORDS = "detail"
"""The column with words that name tasks."""

DIFFICULTY = "difficulty"
"""The column with numbers that are whole in most domains."""

COLOURS = 7
"""Number of colours for lines and groups; the style sheet names them s0, s1 and so on."""


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
    """Cut a text, and replace the invisible characters of what remains."""
    return visible(text[:LONGEST]) + ("…" if len(text) > LONGEST else "")


def cell(value: Any, column: str = "", run: str = "") -> Markup:
    """Return a value as a cell of a table: numbers to the right, ids as links to their pages."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    kind = "n" if is_number else "s" if len(shown(value)) <= SHORT else "t"
    return Markup('<td class="{}">{}</td>').format(kind, linked(value, column, run))


def brief(text: str) -> str:
    """Return a digest or the id of a row, cut to its telling part; any other text as it is.

    An id keeps its kind, epoch, place and sample: `g000003-f628b418-0000012.0001` is `g3…12.1`.
    """
    if DIGEST.fullmatch(text):
        return text[:DIGITS]
    if found := ROW.fullmatch(text):
        kind, epoch, place, sample = found.groups()
        return f"{kind}{epoch}…{place}" + ("" if sample is None else f".{sample}")
    return text


def named(value: Any, place: str = "") -> Markup:
    """Return a value as text, linked to a place if there is one.

    A cut text has the whole as its title, and a button beside it that copies the whole.
    """
    said = shown(value)
    cut = brief(said)
    if cut == said:
        link = Markup('<a href="{}">{}</a>')
        return link.format(place, said) if place else escape(said)
    words = Markup('<a href="{}" title="{}">{}</a>').format(place, said, cut)
    if not place:
        words = Markup('<span title="{}">{}</span>').format(said, cut)
    return Markup('<span class="id">{}{}</span>').format(words, copying(said))


def copying(text: str) -> Markup:
    """Return a button that copies a text; static/copy.js confirms the copy."""
    return Markup(
        '<button type="button" class="copy-id" value="{}" aria-label="copy {}"></button>'
    ).format(text, visible(text))


def linked(value: Any, column: str, run: str) -> Markup:
    """Return a value as text, and an id as a link to its page.

    In words, such as `same words as` and a task, the ids of tasks are links and stay whole.
    """
    if column == DIFFICULTY:
        return named(whole(value) if isinstance(value, float) else value)
    said = shown(value)
    if column == WORDS and run and TASK.search(said):
        link = Markup('<a href="{}">{}</a>')
        return Markup("").join(
            link.format(_place(part, "task_id", run), part) if TASK.fullmatch(part) else part
            for part in TASK.split(said)
        )
    place = _place(str(value), column, run) if said and len(said) < LONGEST else ""
    return named(value, place)


def setting(value: Any, name: str) -> Any:
    """Return the value of a setting, hidden where the setting's name marks a secret."""
    last = name.rsplit(".", 1)[-1]
    return without_secrets({last: value})[last]


def segment(text: object) -> str:
    """Return a text as one part of a path."""
    return quote(str(text), safe="")


def _place(value: str, column: str, run: str) -> str:
    """Return the address of an id's page, '' for an id without a page."""
    if column in RUNS:
        return path_of(value)
    if column in BELOW and run:
        return path_of(run, BELOW[column], value)
    return ""


def colour_of(index: int) -> str:
    """Return the name of the colour of line or group number `index`."""
    return f"s{index % COLOURS}"
