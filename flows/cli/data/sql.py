"""`genenv sql`: one query, given or in a file, or a prompt."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.data.query import (
    Format,
    format_of,
    run_query,
    show_schema,
    write_attach_file,
)
from flows.cli.options import Root, check_output
from genenv_core.addresses import DEFAULT_ROOT
from genenv_core.errors import QueryError
from genenv_core.named_files import unreadable

TABLE_ROWS = 100
"""Rows that a table shows unless --limit-rows says otherwise; the other formats give all."""


def sql(
    query: Annotated[
        str, typer.Argument(help="One SELECT over the tables and views; - reads it from a pipe.")
    ] = "",
    root: Root = None,
    file: Annotated[Path | None, typer.Option("--file", help="Read the query from a file.")] = None,
    format_: Annotated[
        Format | None,
        typer.Option("--format", help="Output format (default: the ending of OUTPUT, or table)."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file.")
    ] = None,
    schema: Annotated[
        bool,
        typer.Option("--schema", help="List tables, views and columns; QUERY may be one name."),
    ] = False,
    limit_rows: Annotated[
        int | None,
        typer.Option(min=0, help=f"Most rows, 0 for all (default: {TABLE_ROWS} in a table)."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Most seconds that a query takes; inf: no limit.")
    ] = 60,
    memory: Annotated[str, typer.Option(help="Most memory that a query uses.")] = "1GB",
    attach: Annotated[
        Path | None,
        typer.Option("--attach-file", help="Write a DuckDB file of views, for other tools."),
    ] = None,
) -> None:
    """Query the pools with SQL, read-only; without a query, a prompt."""
    if schema:
        show_schema(query)
        return
    if attach is not None:
        if query or file or output:
            raise QueryError("--attach-file writes views and runs no query: give it alone")
        write_attach_file(root or DEFAULT_ROOT, attach)
        return
    wanted = format_of(format_, output)
    if limit_rows is None and wanted is Format.TABLE:
        limit_rows = TABLE_ROWS
    from genenv_core.pools import Limits, reader

    limits = Limits(timeout, memory, limit_rows or None)
    place = root or DEFAULT_ROOT
    _check_output(reader(place).home, wanted, output)
    text = _text(query, file)
    if text is None and sys.stdin.isatty() and output is None:
        from flows.cli.data.prompt import prompt

        prompt(place, wanted, limits)
    elif text is None:
        raise QueryError('give a query, for example: genenv sql "SELECT * FROM epochs"')
    else:
        run_query(place, text, wanted, limits, output)


def _check_output(root: Path, wanted: Format, output: Path | None) -> None:
    if output is None:
        if wanted is Format.PARQUET and sys.stdout.isatty():
            raise QueryError("parquet is not text: write it to a file with -o rows.parquet")
        return
    place = Path(os.path.realpath(output))  # Path.resolve() fails where links are a circle
    if place.is_relative_to(os.path.realpath(root)):
        raise QueryError(f"-o {output} is inside the root {root}: choose another place")
    check_output("-o", output)


def _text(query: str, file: Path | None) -> str | None:
    if file is not None:
        if query:
            raise QueryError("give a query or --file, not both")
        if why := unreadable(file, once=True):
            raise QueryError(f"--file {file}: {why}")
        return _read(f"--file {file}", file.read_bytes)
    if query == "-":
        return _read("the query from the pipe", sys.stdin.buffer.read)
    # Where the locale is ASCII, Python has kept the bytes of other characters as surrogates.
    return _read("the query", lambda: os.fsencode(query)) if query else None


def _read(what: str, read: Callable[[], bytes]) -> str:
    try:
        return read().decode()
    except UnicodeError as error:
        raise QueryError(f"{what} is no UTF-8: {error}") from error
    except OSError as error:
        raise QueryError(f"{what}: {error.strerror}") from error
