"""`genenv status`, `genenv sql`, `genenv verify`, `genenv doctor`."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.run import Json, Root

if TYPE_CHECKING:
    import polars as pl

DEFAULT_ROOT = "./genenv-data"


class Format(StrEnum):
    """How `genenv sql` prints."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def status(
    run: Annotated[str | None, typer.Argument(help="A run; without one, all runs.")] = None,
    root: Root = None,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Follow the run.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="All epochs, not the last 20.")] = False,
) -> None:
    """Show the runs of a root, or one run: its epochs, and what became of each stage."""
    from flows.cli.status import show_run, show_runs, watch_run
    from genenv_core.errors import ConfigError

    store = _existing(root)
    if watch and (not run or as_json):
        raise ConfigError("--watch follows one run on the terminal: name it, without --json")
    if not run:
        show_runs(store, as_json=as_json)
    elif watch:
        watch_run(store, run)
    else:
        show_run(store, run, as_json=as_json, everything=everything)


def sql(
    query: Annotated[str, typer.Argument(help="One SELECT over the tables and views.")] = "",
    root: Root = None,
    format_: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.TABLE,
    schema: Annotated[bool, typer.Option("--schema", help="List tables and columns.")] = False,
) -> None:
    """Query the pools with SQL, read-only."""
    from genenv_core.errors import QueryError
    from genenv_core.storage.catalog import describe
    from genenv_core.storage.catalog import query as run_query
    from genenv_core.storage.pools import open_pools

    if schema:
        for relation in describe():
            typer.echo(f"{relation.signature} ({relation.kind}): {relation.description}")
            given = [(f"{p.name} :=", p) for p in relation.parameters]
            for name, column in [*given, *((column.name, column) for column in relation.columns)]:
                typer.echo(f"    {name:24} {column.sql_type:12} {column.description}")
        return
    if not query:
        raise QueryError('give a query, for example: genenv sql "SELECT * FROM epochs"')
    with open_pools(_existing(root)) as connection:
        _print(run_query(connection, query), format_)


def verify(root: Root = None, as_json: Json = False) -> None:
    """Read every file of a root and name those that are damaged; exit status 1 if any is."""
    from flows.cli.verify import show

    if not show(_existing(root), as_json=as_json):
        raise typer.Exit(1)


def doctor(root: Root = None, as_json: Json = False) -> None:
    """Check this machine: versions, root, memory, server start; says what to do."""
    from flows.cli.doctor import checks

    results = checks(root or DEFAULT_ROOT)
    if as_json:
        typer.echo(json.dumps([{"name": r.name, "ok": r.ok, "detail": r.detail} for r in results]))
    else:
        for result in results:
            mark = typer.style("ok  ", fg="green") if result.ok else typer.style("FAIL", fg="red")
            typer.echo(f"{mark} {result.name}: {result.detail}")
    if not all(result.ok for result in results):
        raise typer.Exit(1)


def _existing(root: str | None) -> Any:
    """Return the store of a root that is there already; looking must not create one."""
    from pathlib import Path

    from genenv_core.errors import ConfigError
    from genenv_core.storage.registry import open_store

    name = root or DEFAULT_ROOT
    if "://" not in name and not (Path(name) / "runs").is_dir():
        raise ConfigError(f"there is no run under {name}: start one with `genenv run`, or --root")
    return open_store(name)


def _print(frame: pl.DataFrame, format_: Format) -> None:
    if format_ is Format.CSV:
        sys.stdout.write(frame.write_csv())
    elif format_ is Format.JSON:
        # write_json keeps dates and 64-bit integers as JSON readers expect them.
        sys.stdout.write(frame.write_json() + "\n")
    else:
        from flows.cli.tables import console, plain_table

        table = plain_table()
        for name, dtype in frame.schema.items():
            table.add_column(name, justify="right" if dtype.is_numeric() else "left")
        for row in frame.iter_rows():
            table.add_row(*(_cell(value) for value in row))
        out = console()
        out.print(table)
        out.print(f"[dim]{frame.height} rows[/]")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("[", "\\[")
