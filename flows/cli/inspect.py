"""`genenv status`, `genenv report`, `genenv doctor`: they look and change nothing."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Json, Root, RunOrAll, check_output, existing, written_to
from flows.shown.json_text import json_text
from genenv_core.addresses import DEFAULT_ROOT
from genenv_core.errors import ConfigError


def status(
    run: RunOrAll = None,
    root: Root = None,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Follow the run.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show all epochs, not the last 20 alone.")
    ] = False,
    predicted: Annotated[
        bool,
        typer.Option("--predicted", help="Compare what it took with what earlier runs predicted."),
    ] = False,
) -> None:
    """Show the runs of a root, or one run: its epochs, and what became of each stage."""
    from flows.cli.runs.listing import show_runs
    from flows.cli.runs.status import show_run, watch_run

    store = existing(root)
    if watch and (not run or as_json):
        raise ConfigError("--watch follows one run on the terminal: name it, without --json")
    if predicted and (not run or watch):
        raise ConfigError("--predicted is for one run, without --watch: name it")
    if not run:
        show_runs(store, as_json=as_json)
    elif watch:
        watch_run(store, run)
    else:
        show_run(store, run, as_json=as_json, everything=everything, predicted=predicted)


def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Runs to report on; without one, the newest."),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page.")] = Path("report.html"),
    root: Root = None,
) -> None:
    """Write one self-contained HTML page on one or several runs."""
    from datetime import UTC, datetime

    from genenv_core import __version__
    from genenv_core.report.data import read_report
    from genenv_core.report.page import render
    from genenv_core.storage.sql.sources import open_tables

    store = existing(root)
    check_output("--output", output)
    if not runs:
        from flows.cli.runs.listing import newest_run

        runs = [newest_run(store)]
    with open_tables(store, runs) as connection:
        reports = read_report(connection, runs)
    page = render(reports, root=root or store.uri, now=datetime.now(UTC), version=__version__)
    written_to("--output", output, page.encode())
    done = ", ".join(f"{r.run_id} {len(r.epochs)}/{r.planned} epochs" for r in reports)
    typer.echo(f"{output}: {len(page.encode()) / 1000:.0f} kB, {done}")


def doctor(
    root: Root = None,
    as_json: Json = False,
    model: Annotated[
        Path | None, typer.Option(help="Probe this checkpoint instead: chat template, tool calls.")
    ] = None,
) -> None:
    """Check this machine: versions, root, memory, server start; say what to do."""
    from flows.cli.machines.doctor import checks, model_checks

    results = checks(root or DEFAULT_ROOT) if model is None else model_checks(model)
    if as_json:
        typer.echo(json_text([asdict(result) for result in results]))
    else:
        for result in results:
            mark = typer.style("ok  ", fg="green") if result.ok else typer.style("FAIL", fg="red")
            typer.echo(f"{mark} {result.name}: {result.detail}")
    if not all(result.ok for result in results):
        raise typer.Exit(1)
