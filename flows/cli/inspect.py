"""`genenv status`, `genenv verify`, `genenv doctor`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from flows.cli.options import DEFAULT_ROOT, Json, Root
from flows.cli.roots import existing


def status(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="A run; without one, all runs.")
    ] = None,
    root: Root = None,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Follow the run.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="All epochs, not the last 20.")] = False,
) -> None:
    """Show the runs of a root, or one run: its epochs, and what became of each stage."""
    from flows.cli.status import show_run, show_runs, watch_run
    from genenv_core.errors import ConfigError

    store = existing(root)
    if watch and (not run or as_json):
        raise ConfigError("--watch follows one run on the terminal: name it, without --json")
    if not run:
        show_runs(store, as_json=as_json)
    elif watch:
        watch_run(store, run)
    else:
        show_run(store, run, as_json=as_json, everything=everything)


def verify(root: Root = None, as_json: Json = False) -> None:
    """Read every file of a root and name those that are damaged; exit status 1 if any is."""
    from flows.cli.verify import show

    if not show(existing(root), as_json=as_json):
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
