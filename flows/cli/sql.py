"""`genenv sql`: one query, a file of one, or a prompt."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.inspect import DEFAULT_ROOT
from flows.cli.run import Root

if TYPE_CHECKING:
    from genenv_core.pools import Limits

TABLE_ROWS = 100
"""Rows that a table shows unless --limit-rows says otherwise; the other formats give all."""


class Format(StrEnum):
    """How `genenv sql` writes rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


def sql(
    query: Annotated[
        str, typer.Argument(help="One SELECT over the tables and views; - reads it from a pipe.")
    ] = "",
    root: Root = None,
    file: Annotated[Path | None, typer.Option("--file", help="Read the query from here.")] = None,
    format_: Annotated[
        Format | None,
        typer.Option("--format", help="Output format; by default as OUTPUT ends, else table."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here and not to the terminal.")
    ] = None,
    schema: Annotated[
        bool,
        typer.Option("--schema", help="List tables, views and columns; QUERY may be one name."),
    ] = False,
    limit_rows: Annotated[
        int | None,
        typer.Option(min=0, help=f"Rows at most, 0 for all. [default: {TABLE_ROWS} in a table]"),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that a query may take.")] = 60,
    memory: Annotated[str, typer.Option(help="Memory that a query may use.")] = "1GB",
) -> None:
    """Query the pools with SQL, read-only; without a query, a prompt."""
    from genenv_core.errors import QueryError

    if schema:
        show_schema(query)
        return
    wanted = _format(format_, output)
    if limit_rows is None and wanted is Format.TABLE:
        limit_rows = TABLE_ROWS
    from genenv_core.pools import Limits, reader

    limits = Limits(timeout, memory, limit_rows or None)
    place = root or DEFAULT_ROOT
    _check_output(reader(place).home, wanted, output)
    text = _text(query, file)
    if text is None and sys.stdin.isatty() and output is None:
        from flows.cli.prompt import prompt

        prompt(place, wanted, limits)
    elif text is None:
        raise QueryError('give a query, for example: genenv sql "SELECT * FROM epochs"')
    else:
        run_query(place, text, wanted, limits, output)


def run_query(
    root: str, text: str, wanted: Format, limits: Limits, output: Path | None = None
) -> None:
    """Run one query and write its rows."""
    from flows.cli.rows import write
    from genenv_core.pools import answer

    write(answer(root, text, limits=limits), wanted.value, output)


def show_schema(name: str) -> None:
    """Print every table and view with its columns, or one of them."""
    import difflib

    from genenv_core.errors import QueryError
    from genenv_core.storage.catalog import describe

    relations = {relation.name: relation for relation in describe()}
    if name and name not in relations:
        near = difflib.get_close_matches(name, relations, n=1)
        hint = f", did you mean {near[0]}?" if near else f"; there are {', '.join(relations)}"
        raise QueryError(f"{name!r} is no table or view{hint}")
    for relation in [relations[name]] if name else relations.values():
        typer.echo(f"{relation.signature} ({relation.kind}): {relation.description}")
        given = [(f"{parameter.name} :=", parameter) for parameter in relation.parameters]
        for label, column in [*given, *((column.name, column) for column in relation.columns)]:
            typer.echo(f"    {label:24} {column.sql_type:12} {column.description}")


def _format(given: Format | None, output: Path | None) -> Format:
    if given is not None:
        return given
    suffix = output.suffix.removeprefix(".") if output else ""
    return Format(suffix) if suffix in set(Format) else Format.TABLE


def _check_output(root: Path, wanted: Format, output: Path | None) -> None:
    from genenv_core.errors import QueryError

    if output is None:
        if wanted is Format.PARQUET and sys.stdout.isatty():
            raise QueryError("parquet is no text: write it to a file with -o rows.parquet")
    elif output.resolve().is_relative_to(root.resolve()):
        raise QueryError(f"-o {output} is inside of the root {root}: choose another place")
    elif not output.resolve().parent.is_dir():
        raise QueryError(f"-o {output}: there is no folder {output.resolve().parent}")


def _text(query: str, file: Path | None) -> str | None:
    from genenv_core.errors import QueryError

    if file is not None:
        if query:
            raise QueryError("give a query or --file, not both")
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise QueryError(f"--file {file}: {error}") from error
    if query == "-":
        return sys.stdin.read()
    return query or None
