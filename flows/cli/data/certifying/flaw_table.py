"""What every kind of `genenv certify` prints: the table of flaws, remedies, and how it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from genenv_core.errors import GenenvError

if TYPE_CHECKING:
    from rich.text import Text

    from flows.cli.data.certifying.worded_table import WordedTable
    from genenv_core.play.checking.sets import FlawCount

SAID = 70
"""Characters of an example's detail, and of its prompt."""


def tasks_of(count: int) -> str:
    """Return a number of tasks in words."""
    return f"{count} task{'s' * (count != 1)}"


def flaw_table(counts: Sequence[FlawCount]) -> WordedTable:
    """Return a row for each flaw; with an example where some task has one."""
    from rich.text import Text

    from flows.cli.data.certifying.worded_table import WordedTable
    from flows.shown.rows import cell

    rows: list[tuple[list[str | Text], Text]] = []
    for count in counts:
        style = "bold red" if count.having else ""
        example = Text()
        if count.detail:
            prompt = cell(count.prompt, SAID)
            prompt.stylize("dim")
            example = Text("\n").join([cell(count.detail, SAID), prompt])
        cells = [
            Text(count.flaw.value if count.flaw else "any of them", style),
            str(count.checked),
            Text(str(count.having), style),
            f"{count.having / count.checked:.1%}",
            f"[{count.low:.1%}, {count.high:.1%}]".replace("[", "\\["),
        ]
        rows.append((cells, example))
    numbers = ("tasks", "have it", "share", "95 % interval")
    return WordedTable(("flaw", *numbers), numbers, "example", rows)


def say_remedies(counts: Sequence[FlawCount]) -> None:
    """Print what to do about the flaws that were found."""
    from genenv_core.play.checking.set_flaws import REMEDIES

    for count in counts:
        if count.flaw and count.having:
            method, remedy = REMEDIES[count.flaw]
            typer.echo(f"{count.flaw}: {method}\n  -> {remedy}")


def check_sound(name: str, flawed: int, count: int) -> None:
    """Raise GenenvError where some of so many tasks have a flaw; `name` says whose they are."""
    if flawed:
        have = "tasks has a flaw" if flawed == 1 else "tasks have a flaw"
        raise GenenvError(f"{name}: {flawed} of {count} {have}, counted above")
