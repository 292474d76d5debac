"""Runs a query, and lists tables and views, for `genenv sql` and its prompt."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from genenv_core.errors import QueryError

if TYPE_CHECKING:
    from genenv_core.pools import Limits


class Format(StrEnum):
    """How `genenv sql` and `genenv certify` write rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


def format_of(given: Format | None, output: Path | None) -> Format:
    """Return the format that rows are written in: the given one, or that of the file's ending."""
    if given is not None:
        return given
    suffix = output.suffix.removeprefix(".").lower() if output else ""
    if suffix in ("", "txt"):
        return Format.TABLE
    if suffix not in set(Format):
        raise QueryError(
            f"-o {output}: .{suffix} is not one of the formats {', '.join(Format)}: end the name "
            "with one of them, or set --format"
        )
    return Format(suffix)


def run_query(
    root: str, text: str, wanted: Format, limits: Limits, output: Path | None = None
) -> None:
    """Run one query and write its rows."""
    from flows.cli.data.writing import write
    from genenv_core.pools import answer

    write(answer(root, text, limits=limits), wanted.value, output)


def write_attach_file(root: str, path: Path) -> None:
    """Write a database of views over a root and say how it is opened."""
    from genenv_core.pools import attach_file

    files = attach_file(root, path)
    typer.echo(f"{path}: views over {files} files; open it with any DuckDB: duckdb {path}")


def show_schema(name: str) -> None:
    """Print every table and view with its columns, or one of them."""
    import difflib

    from schemas.relations import describe

    relations = {relation.name: relation for relation in describe()}
    if name and name not in relations:
        near = difflib.get_close_matches(name, relations, n=1)
        hint = f", did you mean {near[0]}?" if near else f"; there are {', '.join(relations)}"
        raise QueryError(f"{name!r} is no table or view{hint}")
    for relation in [relations[name]] if name else relations.values():
        typer.echo(f"{relation.signature} ({relation.kind}): {relation.about}")
        given = [(f"{parameter.name} :=", parameter) for parameter in relation.parameters]
        for label, column in [*given, *((column.name, column) for column in relation.columns)]:
            typer.echo(f"    {label:24} {column.sql_type:12} {column.description}")
