"""Prints a benchmark's result, and writes its file of verdicts."""

from __future__ import annotations

import io
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import typer
from rich.text import Text

from flows.cli.options import not_written
from flows.shown.tables import console, plain_table
from genenv_core.benchmarks.predictions import Result
from genenv_core.named_files import open_special

LISTED = 20
"""Keys whose results the terminal shows; a file may have one for each line."""


@contextmanager
def verdicts_file(path: Path | None) -> Generator[IO[str] | None]:
    """Yield a file that appears under its name once it is whole.

    Writes into devices and pipes instead of replacing them.
    """
    if path is None:
        yield None
        return
    target = Path(os.path.realpath(path))
    begun = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if special := open_special(path):
            with io.TextIOWrapper(special, encoding="utf-8") as file:
                yield file
            return
        with begun.open("w", encoding="utf-8") as file:
            yield file
        begun.replace(target)
    except OSError as error:
        raise not_written("--items", path, error) from error
    finally:
        begun.unlink(missing_ok=True)


def show_result(
    facts: Mapping[str, Any],
    what: str,
    counted: str,
    data: Mapping[str, Any],
    results: Sequence[Result],
) -> None:
    """Print a benchmark's metrics by key, and the parts not run; `what` says what the mode does."""
    typer.echo(
        f"{facts['benchmark']}, mode {facts['mode']} ({what})\n"
        f"{counted}; data {data['digest'][:12]} with {data['items']} items"
    )
    keyed = any(result.key is not None for result in results)
    table = plain_table()
    for title in [*(["key"] if keyed else []), "metric"]:
        table.add_column(title)
    for title in ("points of 100", "95 % interval", "items"):
        table.add_column(title, justify="right")
    for result in results[:LISTED]:
        own = [Text("" if result.key is None else str(result.key))] if keyed else []  # no markup
        for metric in result.metrics:
            if metric.value is not None and metric.low is not None and metric.high is not None:
                interval = f"[{100 * metric.low:.1f}, {100 * metric.high:.1f}]"
                cells = (metric.name, f"{100 * metric.value:.1f}", interval, str(metric.items))
                table.add_row(*own, *cells)
    if results:
        console().print(table)
    for result in results[:LISTED]:
        key = f" under key {result.key}" if keyed else ""
        for metric in result.metrics:
            if metric.missing:
                typer.echo(f"no value{key}: {metric.name}, which needs {', '.join(metric.missing)}")
            elif metric.value is None:
                typer.echo(f"no value{key}: {metric.name}, of which no item was scored")
        if result.not_run:
            missing = ", ".join(f"{count} of {group}" for group, count in result.not_run.items())
            typer.echo(f"not run{key}: {missing}")
    if len(results) > LISTED:
        typer.echo(f"and the results of {len(results) - LISTED} more keys, which --json has")
