"""Rows as a table for the terminal, and as the bytes of files."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.text import Text

from flows.shown.spelling import flat, json_of, nested, spelled
from flows.shown.tables import plain_table
from genenv_core.errors import QueryError, one_line
from genenv_core.pools import Answer

CELL = 60
"""Characters of a cell in a table; a result of one column has room for more."""


def encode(answer: Answer, format_: str) -> bytes:
    """Return rows as the bytes of a file."""
    frame = answer.frame
    try:
        if format_ == "csv":
            return flat(spelled(frame)).write_csv().encode()
        if format_ == "json":
            return json_of(spelled(frame)).encode()
        if format_ == "parquet":
            sink = BytesIO()
            frame.write_parquet(sink)
            return sink.getvalue()
    except pl.exceptions.PolarsError as error:
        message = one_line(error, 300)
        raise QueryError(f"{format_} cannot hold this result: {message}") from error
    out = wide()
    with out.capture() as captured:
        show(answer, out)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()).encode()


def show(answer: Answer, out: Console) -> None:
    """Print a table and its number of rows; long cells end with an ellipsis, NULL shows as NULL."""
    frame = answer.frame
    if frame.columns == ["explain_key", "explain_value"]:
        for _, lines in frame.iter_rows():
            out.print(Text(str(lines).rstrip()), soft_wrap=True)
        return
    frame = spelled(frame)
    room = CELL if frame.width > 1 else 10 * CELL
    table = plain_table()
    for name, dtype in frame.schema.items():
        right = dtype.is_numeric()
        table.add_column(
            cell(name, room),
            justify="right" if right else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in frame.iter_rows():
        table.add_row(*(cell(value, room) for value in row))
    out.print(table)
    cut = sum(len(_line(value)) > room for row in frame.iter_rows() for value in row)
    out.print(Text(counted(answer) + _whole(cut), style="dim"), soft_wrap=True)


def cell(value: Any, room: int = CELL) -> Text:
    """Return a value on one line of at most `room` characters."""
    if value is None:
        return Text("NULL", style="dim")
    text = _line(value)
    return Text(text if len(text) <= room else text[: room - 1] + "…")


def _line(value: Any) -> str:
    """Return a value on one line, whole."""
    if isinstance(value, float):
        text = f"{value:.4g}"
    else:
        text = nested(value) if isinstance(value, list | dict) else str(value)
    text = text.replace("\r", "").replace("\n", "⏎").replace("\t", " ")
    # Characters that move the cursor or change colours must not reach the terminal.
    return "".join(char if char.isprintable() else "�" for char in text)


def _whole(cut: int) -> str:
    """Return how the cells that a table cuts are seen whole, '' where it cuts none."""
    if not cut:
        return ""
    return f"; {cut} cell{'s end' if cut > 1 else ' ends'} with …: --format json shows the whole"


def wide() -> Console:
    """Return a console that folds no row."""
    return Console(width=10_000, highlight=False, color_system=None)


def counted(answer: Answer, output: Path | None = None) -> str:
    """Return how many rows there are and where, and what to know where there are none."""
    rows = answer.frame.height
    count = f"{rows} row{'s' * (rows != 1)}"
    if answer.truncated:
        count = f"first {rows} rows, there are more: --limit-rows 0 shows all"
    place = f" in {output}" if output else ""
    return f"{count}{place}{answer.remark and f': {answer.remark}'}"
