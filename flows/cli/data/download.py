"""`genenv data`: getting the official data of benchmarks, and saying what a folder has of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.data.eval import ALL, Name
from flows.cli.options import Json
from flows.shown.json_text import json_text
from genenv_core.benchmarks.registry import get_benchmark, known_benchmarks
from genenv_core.errors import ConfigError

if TYPE_CHECKING:
    from genenv_core.benchmarks.downloads.checking import Checked

LISTED = 5
"""Names of a kind that the terminal shows; `--json` shows all."""

app = typer.Typer(help="Get the official data of benchmarks, and check it.", no_args_is_help=True)


@app.command("fetch")
def fetch(
    name: Name,
    to: Annotated[
        Path | None,
        typer.Option(
            help="The folder that gets a folder for each benchmark (default: GENENV_BENCHMARKS).",
            metavar="DIR",
        ),
    ] = None,
    mirror: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="A folder or an http(s) address that has https://HOST/PATH as HOST/PATH; "
            "genenv then asks no other server.",
            metavar="MIRROR",
        ),
    ] = None,
) -> None:
    """Get what is missing or wrong of a benchmark's official download, from pinned addresses."""
    from genenv_core.benchmarks.downloads.fetching import fetch as fetched
    from genenv_core.benchmarks.downloads.origin import DownloadOrigin
    from genenv_core.benchmarks.downloads.sources import source_of
    from genenv_core.benchmarks.training.benchmark_domain import folder_in

    names, together, lacking = _names(name), _together(to, "--to"), 0
    origin = DownloadOrigin(mirror)
    for one in names:
        folder = folder_in(together, one)
        typer.echo(f"{one}: {folder}")
        source = source_of(one)
        if not source.parts:
            typer.echo("  its package names no source: bring its data yourself")
        for outcome in fetched(source, folder, origin):
            lacking += not outcome.ok
            shown = f"{outcome.to}: {outcome.said}"
            typer.echo(f"  {shown if outcome.ok else f'NOT THERE: {shown}'}")
    if lacking:
        typer.echo(f"{lacking} parts are not there; the same command gets only these", err=True)
        raise typer.Exit(1)


@app.command("check")
def check(
    name: Name,
    data: Annotated[
        Path | None,
        typer.Option(
            help="The folder of the benchmark's official download; for all, the folder above "
            "theirs (default: GENENV_BENCHMARKS).",
            metavar="DIR",
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """List the items of a folder, those that cannot be scored, and which files are official."""
    from genenv_core.benchmarks.downloads.checking import check as checked
    from genenv_core.benchmarks.training.benchmark_domain import folder_in

    names = _names(name)
    if data is not None and name != ALL:
        folders = {name: data.expanduser()}
    else:
        together = _together(data, "--data")
        folders = {one: folder_in(together, one) for one in names}
    found = [checked(one, folder) for one, folder in folders.items()]
    if json_:
        typer.echo(json_text([one.as_json() for one in found], indent=2))
    else:
        for one in found:
            _show(one)
    if any(one.fault for one in found):
        raise typer.Exit(1)


def _names(name: str) -> list[str]:
    return known_benchmarks() if name == ALL else [get_benchmark(name).name]


def _together(given: Path | None, option: str) -> Path:
    from genenv_core.benchmarks.training.benchmark_domain import DATA_VARIABLE

    named = os.environ.get(DATA_VARIABLE)
    if given is None and not named:
        raise ConfigError(f"{option} is not given: name a folder, or set {DATA_VARIABLE} to one")
    return (given or Path(str(named))).expanduser()


def _show(one: Checked) -> None:
    from genenv_core.benchmarks.downloads.state import FileState

    typer.echo(f"{one.name}: {one.folder}")
    if one.fault:
        typer.echo(f"  CANNOT BE USED: {one.fault}")
    else:
        typer.echo(f"  digest {one.digest}")
        for group, count in one.items.items():
            whole = one.official.get(group, count)
            typer.echo(f"  {group}: {count} items" + (f" of {whole}" if count != whole else ""))
        if one.not_scored:
            typer.echo(f"  not scored, for lack of items: {', '.join(one.not_scored)}")
    meanings = {
        FileState.EQUAL: "equal to the official ones",
        FileState.DIFFERENT: "DIFFERENT from the official ones, or changed since they were fetched",
        FileState.AS_FETCHED: "as they were fetched; no digest is published",
        FileState.UNKNOWN: "with nothing to compare them with",
        FileState.MISSING: "not there under the official name",
    }
    for state, meaning in meanings.items():
        if names := one.of(state):
            listed = ", ".join(names[:LISTED]) + (", ..." if len(names) > LISTED else "")
            typer.echo(f"  files {meaning}: {len(names)} ({listed})")
