"""`genenv status`, `genenv doctor`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from flows.cli.run import Json, Root

DEFAULT_ROOT = "./genenv-data"


def status(
    run: Annotated[str | None, typer.Argument(help="A run; without one, all runs.")] = None,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Show the runs of a root, or one run epoch by epoch."""
    from flows.cli.status import show_run, show_runs

    show = show_run if run else show_runs
    show(_existing(root), run or "", as_json=as_json)


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
