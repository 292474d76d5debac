"""What tests read from a page: its tables and lists, each with the SQL that stands beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from flows.view.pages.rejected import share
from flows.view.pages.runs import LATER, line_of
from flows.view.reading import PAGE
from flows.view.shown import DIFFICULTY, brief, shown
from genenv_core.report.words import whole

CUT = {"tasks": 200, "heldout": 200, "siblings": 40, "items": 200, "made_of": 200, "behind": 200}
"""Tables of which a page shows the first rows alone, and how many."""


@dataclass
class Shown:
    """One table or list of facts as text: its columns, its rows, and its SQL ('' for none)."""

    name: str
    columns: list[str] = field(default_factory=list[str])
    rows: list[list[str]] = field(default_factory=list[list[str]])
    sql: str = ""


class Pages(HTMLParser):
    """The tables of a page, in order, and its links."""

    def __init__(self, text: str) -> None:
        """Read a page."""
        super().__init__()
        self.shown: list[Shown] = []
        self.links: list[str] = []
        self._into: list[str] | None = None
        self._words: list[str] = []
        self._in_sql = False
        self._in_list = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "a":
            self.links.append(given.get("href", ""))
        if "data-panel" in given:
            self.shown.append(Shown(given["data-panel"]))
            if tag == "dl":
                self.shown[-1].rows.append([])
        if tag in ("dl", "table"):  # a list without a panel says what the columns of one mean
            self._in_list = tag == "dl" and "data-panel" in given
        if tag in ("th", "dt") and "data-column" in given and self.shown:
            self.shown[-1].columns.append(given["data-column"])
        if tag == "tr" and self.shown and not self._in_list:
            self.shown[-1].rows.append([])
        if {"data-findings", "data-tokens"} & given.keys():  # filled in later, by another question
            return
        cell = tag == "td" or (tag == "dd" and self._in_list)
        if cell and self.shown and self.shown[-1].rows:
            self._into, self._words = self.shown[-1].rows[-1], []
        if tag == "details":
            self._in_sql = given.get("class") == "sql"
        if tag == "pre" and self._in_sql:
            self._words = []

    def handle_data(self, data: str) -> None:
        self._words.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "dd") and self._into is not None:
            self._into.append("".join(self._words).strip())
            self._into = None
        if tag == "pre" and self._in_sql:
            self._in_sql = False
            if self.shown and not self.shown[-1].sql:
                self.shown[-1].sql = "".join(self._words)


def tables(text: str) -> list[Shown]:
    """Return the tables and lists of facts of a page that have rows."""
    found = Pages(text).shown
    for one in found:
        one.rows = [row for row in one.rows if row]
    return [one for one in found if one.rows]


def held_against_sql(text: str, ask: Callable[[str], list[dict[str, Any]]]) -> int:
    """Return how many tables and lists a page has; each has all rows that its SQL gives, as shown.

    A long table may show the first rows alone, as many as pages show of it.
    """
    found = tables(text)
    for one in found:
        if one.name == "answer":  # the console's, whose question is in its field
            continue
        assert one.sql, one.name
        rows = ask(one.sql)
        assert rows, one.name
        if one.name == "stages":
            assert sorted(_cells(one)) == sorted(map(_state, rows))
            continue
        if one.name == "by_epoch":
            assert sorted(map(_spaced, one.rows)) == sorted(_counts(rows)), one.name
            continue
        if one.name == "runs":
            _as_lines(one, rows)
            continue
        if one.rows[0] and len(one.columns) != len(one.rows[0]):  # a box to choose the row
            one.rows = [row[1:] for row in one.rows]
        for said, row in zip(one.rows, rows, strict=False):
            assert said == [_as_text(row[column], column) for column in one.columns], one.name
        most = CUT.get(one.name, PAGE.rows or 0)
        assert len(one.rows) == min(len(rows), most), one.name
    return len(found)


def _as_lines(listed: Shown, rows: list[dict[str, Any]]) -> None:
    """Hold the list of runs against its rows: it says several of their columns in one cell."""
    lines = [line_of(row) for row in rows]
    columns = [name for name in listed.columns[1:] if name not in LATER]
    said = [
        ["", row["run_id"], *(line[name] for name in columns)]
        for row, line in zip(rows, lines, strict=True)
    ]
    assert listed.rows == said
    hidden = line_of({}).keys() - set(listed.columns)
    assert not any(line[name] for line in lines for name in hidden)


def _as_text(value: Any, column: str) -> str:
    return (whole(value) if column == DIFFICULTY else brief(shown(value))).strip()


def _spaced(row: list[str]) -> list[str]:
    """Return the cells of a row of a matrix that hold something."""
    return [" ".join(cell.split()) for cell in row if cell and cell != "0"]


def _counts(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return the cells of a matrix of reasons by epoch, row by row."""
    counted = "rejections" if "rejections" in rows[0] else "suspects"
    found: dict[tuple[str, str], dict[int, tuple[int, float | None]]] = {}
    for row in rows:
        place = (row.get("kept_from", ""), row["reason"])
        found.setdefault(place, {})[row["epoch"]] = (row[counted], row["share"])
    lines = list(found.values())
    for group in {group for group, _ in found if group}:
        own = [cells for (of, _), cells in found.items() if of == group]
        if len(own) > 1:
            lines.append({})
            for epoch in {epoch for cells in own for epoch in cells}:
                here = [cells[epoch] for cells in own if epoch in cells]
                lines[-1][epoch] = (sum(one[0] for one in here), sum(one[1] or 0 for one in here))
    return [
        [f"{shown(count)} {share(part)}".strip() for _, (count, part) in sorted(cells.items())]
        for cells in lines
    ]


def _cells(grid: Shown) -> list[str]:
    """Return the cells of the grid of stages that have a stage, without the run it came from."""
    return [" ".join(cell.split()[:3]) for row in grid.rows for cell in row if cell]


def _state(row: dict[str, Any]) -> str:
    seconds = row["computed_seconds"] if row["state"] == "cached" else row["seconds"]
    return f"{row['state']} {shown(seconds)} s".replace("  ", " ")
