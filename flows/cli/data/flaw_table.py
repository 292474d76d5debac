"""The table of flaws that both kinds of `genenv certify` print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from genenv_core.play.checking.sets import FlawCount

SAID = 70
"""Characters of an example's detail, and of its prompt."""


def tasks_of(count: int) -> str:
    """Return a number of tasks in words."""
    return f"{count} task{'s' * (count != 1)}"


def flaw_table(counts: Sequence[FlawCount]) -> Table:
    """Return a row for each flaw; with an example where some task has one."""
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


def say_remedies(counts: Sequence[FlawCount]) -> None:
    """Print what to do about the flaws that were found."""
    from genenv_core.play.checking.domain import FLAWS

    for count in counts:
        if count.flaw and count.having:
            method, remedy = FLAWS[count.flaw]
            typer.echo(f"{count.flaw}: {method}\n  -> {remedy}")
