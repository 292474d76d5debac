"""Plays the tasks of a domain or of an exported folder, and shows which flaws they have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from flows.cli.data.flaw_table import check_sound, flaw_table, say_remedies, tasks_of
from flows.cli.data.query import Format
from genenv_core.errors import ConfigError, GenenvError
from genenv_core.play.checking.sets import (
    CertifiedTask,
    SetTask,
    certified,
    compared,
    cost_of,
    counted,
    draw_sets,
    rows_of,
    unchecked,
)
from genenv_core.play.checking.shapes import StopChecking

if TYPE_CHECKING:
    from genenv_core.domains.protocol import Domain

One = TypeVar("One")


def certify_domain(
    name: str,
    domain: Domain,
    counts: tuple[int, int],
    seed: int,
    wanted: Format,
    output: Path | None,
) -> None:
    """Certify so many base tasks and held-out tasks that a domain draws."""
    base, heldout = counts
    try:
        drawn = draw_sets(domain, base, heldout, seed)
    except StopChecking as stop:
        raise GenenvError(f"{name}: {stop.fault}") from stop
    typer.echo(
        f"certifies {tasks_of(len(drawn))} of domain {domain.name}, version {domain.version} "
        f"({base} base, {heldout} held-out)"
    )
    _certify(name, domain, drawn, wanted, output)


def certify_folder(folder: Path, wanted: Format, output: Path | None) -> None:
    """Certify all tasks of an exported folder, played by its own code in another process."""
    from genenv_core.play.checking.elsewhere.folder import folder_domain
    from genenv_core.play.checking.elsewhere.reading import STATEMENT, is_exported, read_folder

    if not is_exported(folder):
        raise ConfigError(
            f"{folder}: there is no {STATEMENT} in it: name a folder that genenv export wrote for "
            "others' programs, or a domain by its name or as my_domain.py:Units"
        )
    given = read_folder(folder)
    with folder_domain(folder, given.package) as domain:
        typer.echo(
            f"certifies {tasks_of(len(given.tasks))} of domain {domain.name}, version "
            f"{domain.version}, that pi_env wrote in {given.run}\n"
            f"{given.files} files are what {STATEMENT} says, and each task what its passport says\n"
            "the folder's own code plays them, in another process, with your rights"
        )
        _certify(str(folder), domain, given.tasks, wanted, output)


def _certify(
    name: str, domain: Domain, tasks: Sequence[SetTask], wanted: Format, output: Path | None
) -> None:
    typer.echo(_cost(domain))
    found: list[CertifiedTask] = []
    try:
        for one in _followed(certified(domain, tasks), "certifies", len(tasks)):
            found.append(one)
        for place, one in _followed(compared(domain, found), "compares", len(tasks)):
            found[place] = one
    except StopChecking as stop:
        raise GenenvError(f"{name}: {stop.fault}") from stop
    finally:  # what was found before an error counts
        _show(domain, found, len(tasks))
        if output is not None:
            _write(found, wanted, output)
    check_sound(name, sum(not one.sound for one in found), len(found))
    typer.echo(f"no flaw in {tasks_of(len(found))}")


def _followed(tasks: Iterable[One], what: str, count: int) -> Iterator[One]:
    """Yield the tasks, with a bar on a terminal."""
    from rich.console import Console
    from rich.progress import track

    bar = Console(stderr=True)
    yield from track(tasks, what, count, console=bar, transient=True, disable=not bar.is_terminal)


def _cost(domain: Domain) -> str:
    """Return what a task costs."""
    cost = cost_of(domain)
    more = "one attempt and one verdict" if cost.played else f"{cost.trivial} verdicts"
    return (
        f"each takes at most {cost.attempts} attempts and {cost.verdicts} verdicts, and {more} for "
        "each trivial answer"
    )


def _show(domain: Domain, found: Sequence[CertifiedTask], asked: int) -> None:
    """Print the table of flaws, which could not be checked, and what to do about those found."""
    from flows.cli.tables import console

    if len(found) < asked:
        typer.echo(f"ended early: {len(found)} of {tasks_of(asked)} certified")
    elif (beside := sum(one.compared for one in found)) < asked:
        typer.echo(f"ended early: {beside} of {tasks_of(asked)} compared with the others")
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
    from genenv_core.storage.sql.sandbox import Answer

    schema: dict[str, Any] = {
        "fingerprint": pl.String, "set": pl.String, "family": pl.String,
        "difficulty": pl.Float64, "prompt": pl.String, "flaw": pl.String,
        "passed": pl.Boolean, "detail": pl.String,
    }  # fmt: skip
    write(Answer(pl.DataFrame(rows_of(found), schema), truncated=False), wanted.value, output)
