"""`genenv certify`: how many tasks of a domain, or of pi_env in a run, have each flaw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.data.flaw_table import flaw_table, say_remedies, tasks_of
from flows.cli.data.query import Format, check_folder, format_of
from flows.cli.options import Overrides, Root
from genenv_core.config.load import resolve
from genenv_core.domains.registry import get_domain
from genenv_core.errors import ConfigError, GenenvError

if TYPE_CHECKING:
    from genenv_core.domains.protocol import Domain
    from genenv_core.play.checking.sets import CertifiedTask, SetTask

BASE, HELDOUT = 200, 100
"""Tasks that a domain is asked for: with no flaw in 300, fewer than 1.3 % of more have one."""


def certify(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A domain as in domain.name: a name, my_domain.py:Units or package.module:Units.",
            show_default=False,
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            help="Instead of a domain: a run, for the tasks that pi_env wrote in it. Also says, "
            "from its attempts, whether they are worth training on."
        ),
    ] = None,
    epochs: Annotated[
        str | None, typer.Option(help="With --run: epochs that wrote the tasks: 3:8, or 5.")
    ] = None,
    set_: Overrides = None,
    tasks: Annotated[
        int | None,
        typer.Option(help=f"Base tasks to certify (default: {BASE}).", min=0, max=100_000),
    ] = None,
    heldout: Annotated[
        int | None,
        typer.Option(help=f"Held-out tasks to certify (default: {HELDOUT}).", min=0, max=100_000),
    ] = None,
    format_: Annotated[
        Format | None,
        typer.Option("--format", help="Format of OUTPUT (default: its ending, or table)."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write a row for each task and check to this file; of a run, one for each check.",
        ),
    ] = None,
    root: Root = None,
) -> None:
    """Say how many tasks have each flaw: play a domain's own, without models, or read a run's."""
    idle = {"--set": bool(set_), "--tasks": tasks is not None, "--heldout": heldout is not None}
    _refuse_idle(name, run, {option for option, given in idle.items() if given}, epochs)
    tasks = BASE if tasks is None else tasks
    heldout = HELDOUT if heldout is None else heldout
    if not tasks and not heldout:
        raise ConfigError("--tasks 0 --heldout 0: ask for at least one task")
    if output is not None:
        check_folder(output)
    elif format_ is not None:
        raise ConfigError(f"--format {format_} is that of a file: name one with -o")
    wanted = format_of(format_, output)
    if run is not None:
        from flows.cli.data.certify_run import certify_run

        certify_run(run, epochs, root, wanted, output)
    elif name is not None:
        _certify_domain(name, set_, tasks, heldout, wanted, output)


def _refuse_idle(name: str | None, run: str | None, idle: set[str], epochs: str | None) -> None:
    """Raise ConfigError unless a domain or a run is named, with options that do something."""
    if name is not None and run is not None:
        raise ConfigError(
            f"{name} and --run {run}: name a domain for its own tasks, or a run for those that "
            "pi_env wrote in it, and leave the other out"
        )
    if name is None and run is None:
        raise ConfigError("name a domain, or a run with --run")
    if run is not None:
        for option in sorted(idle):
            raise ConfigError(
                f"{option} does nothing with --run, which reads the stored tasks: leave it out"
            )
    elif epochs is not None:
        raise ConfigError(f"--epochs {epochs} works with --run alone: leave it out")


def _certify_domain(
    name: str,
    set_: Sequence[str] | None,
    tasks: int,
    heldout: int,
    wanted: Format,
    output: Path | None,
) -> None:
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
        have = "tasks has a flaw" if flawed == 1 else "tasks have a flaw"
        raise GenenvError(f"{name}: {flawed} of {len(found)} {have}, counted above")
    typer.echo(f"no flaw in {tasks_of(len(found))}")


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
        f"certifies {tasks_of(len(drawn))} of domain {domain.name}, version {domain.version} "
        f"({base} base, {len(drawn) - base} held-out)\n"
        f"each takes at most {cost.attempts} attempts and {cost.verdicts} verdicts, and {more} for "
        "each trivial answer"
    )


def _show(domain: Domain, found: Sequence[CertifiedTask], asked: int) -> None:
    """Print the table of flaws, which could not be checked, and what to do about those found."""
    from flows.cli.tables import console
    from genenv_core.play.checking.sets import counted, unchecked

    if len(found) < asked:
        typer.echo(f"ended early: {len(found)} of {tasks_of(asked)} certified")
    if not found:
        return
    counts = counted(found)
    typer.echo("")
    console().print(flaw_table(counts))
    typer.echo("")
    reasons = unchecked(domain, found).items()
    if reasons:
        said = "; ".join(f"{', '.join(flaws)} ({why})" for why, flaws in reasons)
        typer.echo(f"not checked: {said}")
    say_remedies(counts)


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
