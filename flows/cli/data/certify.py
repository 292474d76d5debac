"""`genenv certify`: the certificates of many tasks of a domain, and how many have each flaw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.data.query import Format, check_folder, format_of
from flows.cli.options import Overrides
from genenv_core.config.load import resolve
from genenv_core.domains.registry import get_domain
from genenv_core.errors import ConfigError, GenenvError

if TYPE_CHECKING:
    from rich.table import Table

    from genenv_core.domains.protocol import Domain
    from genenv_core.play.checking.sets import CertifiedTask, FlawCount, SetTask

SAID = 70
"""Characters of an example's detail, and of its prompt."""


def certify(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A domain as in domain.name: a name, my_domain.py:Units or package.module:Units.",
        ),
    ],
    set_: Overrides = None,
    tasks: Annotated[int, typer.Option(help="Base tasks to certify.", min=0, max=100_000)] = 200,
    heldout: Annotated[
        int, typer.Option(help="Held-out tasks to certify.", min=0, max=100_000)
    ] = 100,
    format_: Annotated[
        Format | None,
        typer.Option("--format", help="Format of OUTPUT (default: its ending, or table)."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write a row for each task and check to this file."),
    ] = None,
) -> None:
    """Play the certificates of many tasks, without models; say how many have each flaw."""
    if not tasks and not heldout:
        raise ConfigError("--tasks 0 --heldout 0: ask for at least one task")
    if output is not None:
        check_folder(output)
    elif format_ is not None:
        raise ConfigError(f"--format {format_} is that of a file: name one with -o")
    wanted = format_of(format_, output)
    config = resolve("tiny", overrides=[f"domain.name={name}", *(set_ or ())])
    domain = get_domain(name, config.domain.options)
    from genenv_core.play.checking.sets import certified, draw_sets
    from genenv_core.play.checking.shapes import StopChecking

    found: list[CertifiedTask] = []
    try:
        drawn = draw_sets(domain, tasks, heldout, config.seed)
        typer.echo(_ahead(domain, drawn))
        try:
            for one in _followed(certified(domain, drawn), len(drawn)):
                found.append(one)
        finally:  # what was found before an error counts
            _show(domain, found, len(drawn))
            if output is not None:
                _write(found, wanted, output)
    except StopChecking as stop:
        raise GenenvError(f"{name}: {stop.fault}") from stop
    if flawed := sum(not one.sound for one in found):
        have = "task has a flaw" if flawed == 1 else "tasks have a flaw"
        raise GenenvError(f"{name}: {flawed} of {len(found)} {have}, counted above")
    typer.echo(f"no flaw in {_tasks(len(found))}")


def _tasks(count: int) -> str:
    return f"{count} task{'s' * (count != 1)}"


def _followed(tasks: Iterable[CertifiedTask], count: int) -> Iterator[CertifiedTask]:
    """Yield the tasks, with a bar on a terminal."""
    from rich.console import Console
    from rich.progress import track

    bar = Console(stderr=True)
    yield from track(
        tasks, "certifies", count, console=bar, transient=True, disable=not bar.is_terminal
    )


def _ahead(domain: Domain, drawn: Sequence[SetTask]) -> str:
    """Return what will be certified, and what it costs."""
    from genenv_core.play.checking.sets import cost_of

    cost = cost_of(domain)
    base = sum(task.set_name == "base" for task in drawn)
    more = "one attempt and one verdict" if cost.played else "one verdict"
    return (
        f"certifies {_tasks(len(drawn))} of domain {domain.name}, version {domain.version} "
        f"({base} base, {len(drawn) - base} held-out)\n"
        f"each takes at most {cost.attempts} attempts and {cost.verdicts} verdicts, and {more} for "
        "each trivial answer"
    )


def _show(domain: Domain, found: Sequence[CertifiedTask], asked: int) -> None:
    """Print the table of flaws, which could not be checked, and what to do about those found."""
    from flows.cli.tables import console
    from genenv_core.play.checking.domain import FLAWS
    from genenv_core.play.checking.sets import counted, unchecked

    if len(found) < asked:
        typer.echo(f"ended early: {len(found)} of {_tasks(asked)} certified")
    if not found:
        return
    counts = counted(found)
    typer.echo("")
    console().print(_table(counts))
    typer.echo("")
    reasons = unchecked(domain, found).items()
    if reasons:
        said = "; ".join(f"{', '.join(flaws)} ({why})" for why, flaws in reasons)
        typer.echo(f"not checked: {said}")
    for count in counts:
        if count.flaw and count.having:
            method, remedy = FLAWS[count.flaw]
            typer.echo(f"{count.flaw}: {method}\n  -> {remedy}")


def _table(counts: Sequence[FlawCount]) -> Table:
    from rich.text import Text

    from flows.cli.rows import cell
    from flows.cli.tables import plain_table

    table = plain_table()
    table.add_column("flaw", no_wrap=True)
    for title in ("tasks", "have it", "share", "95 % interval"):
        table.add_column(title, justify="right", no_wrap=True)
    some = any(count.having for count in counts)
    if some:
        table.add_column("example", overflow="fold")
    for count in counts:
        style = "bold red" if count.having else ""
        example = Text()
        if count.detail:
            prompt = cell(count.prompt, SAID)
            prompt.stylize("dim")
            example = Text("\n").join([cell(count.detail, SAID), prompt])
        table.add_row(
            Text(count.flaw.value if count.flaw else "any of them", style),
            str(count.checked),
            Text(str(count.having), style),
            f"{count.having / count.checked:.1%}",
            f"[{count.low:.1%}, {count.high:.1%}]".replace("[", "\\["),
            *([example] if some else []),
        )
    return table


def _write(found: Sequence[CertifiedTask], wanted: Format, output: Path) -> None:
    import polars as pl

    from flows.cli.rows import write
    from genenv_core.play.checking.sets import rows_of
    from genenv_core.storage.sql.sandbox import Answer

    schema: dict[str, Any] = {
        "fingerprint": pl.String, "set": pl.String, "family": pl.String,
        "difficulty": pl.Float64, "prompt": pl.String, "flaw": pl.String,
        "passed": pl.Boolean, "detail": pl.String,
    }  # fmt: skip
    write(Answer(pl.DataFrame(rows_of(found), schema), truncated=False), wanted.value, output)
