"""`genenv report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Root
from flows.cli.roots import existing


def report(
    runs: Annotated[list[str], typer.Argument(metavar="RUN", help="Runs to report on.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page.")] = Path("report.html"),
    root: Root = None,
) -> None:
    """Write one self-contained HTML page on one or several runs."""
    from datetime import UTC, datetime

    from genenv_core import __version__
    from genenv_core.errors import ConfigError
    from genenv_core.report import read_report, render
    from genenv_core.storage.pools import open_pools

    store = existing(root)
    with open_pools(store, runs) as connection:
        reports = read_report(connection, runs)
    page = render(reports, root=root or store.uri, now=datetime.now(UTC), version=__version__)
    try:
        output.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--output {output}: cannot be written: {error.strerror}") from error
    done = ", ".join(f"{r.run_id} {len(r.epochs)}/{r.planned} epochs" for r in reports)
    typer.echo(f"{output}: {len(page.encode()) / 1000:.0f} kB, {done}")
