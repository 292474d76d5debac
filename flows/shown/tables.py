"""Tables for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Column, Table

from flows.shown.json_text import json_text
from genenv_core.benchmarks.registry import get_benchmark
from genenv_core.config.stages import STAGES
from genenv_core.types import Policy
from schemas.enums import UpdateAction

if TYPE_CHECKING:
    from genenv_core.config.branching import BranchPoint
    from genenv_core.config.schema import RunConfig
    from tasks.stage.planning import Planned

NOTES = ""
"""Title of the column of remarks on an epoch."""

FOLDED = 24
"""Least characters of a column whose texts may fold."""

EPOCH_COLUMNS = {
    "epoch": ("epoch", "{:d}"),
    "p_hat": ("p_hat", "{:.2f}"),
    "written": ("p_hat_written", "{:.2f}"),
    "band": ("share_in_band", "{:.0%}"),
    "flat": ("share_zero_signal", "{:.0%}"),
    "level": ("mean_difficulty", "{:.1f}"),
    "tokens": ("mean_response_tokens", "{:.1f}"),
    "test": ("heldout_success", "{:.3f}"),
    "greedy": ("heldout_success_greedy", "{:.3f}"),
    "P(answer)": ("heldout_answer_probability", "{:.3f}"),
    "KL": ("kl_env", "{:.2f}"),
    "steps": ("steps", "{}"),
    "s": ("seconds", "{:.1f}"),
}

EVIDENCE_COLUMNS = {
    "epoch": "{epoch:d}",
    "gain": "{gain:+z.3f}",
    "95 % interval": "[{gain_low:+z.3f}, {gain_high:+z.3f}]",
    "of": "{measured}",
    "p_hat": "{p_hat:.2f}",
    "alpha": "{alpha_is}",
    "signal": "{share_signal:.0%}",
    "tasks": "{distinct_tasks:d}",
    "agent rows": "{agent_rows:d}",
    "env rows": "{env_rows:d}",
    "effective": "{effective_rows:.1f}",
    "weights": "{weight_low:.2f} to {weight_high:.2f}",
    "fidelity": "{fidelity:.2f}",
}
"""Title -> format of a row of the view `evidence`; a cell without its values stays empty."""

ONLY_WHERE_KNOWN = {"fidelity"}
"""Columns that are left out when all their cells are empty: most runs execute their tools."""

SEVERITY_STYLES = {"failure": "bold red", "warning": "bold yellow", "note": "dim"}
"""How a finding is printed, by how grave it is."""

STATUS_MARKS = {"hit": "[green]hit[/]", "miss": "[yellow]miss[/]", "unknown": "[dim]?[/]"}


def epoch_cells(row: dict[str, Any]) -> dict[str, str]:
    """Return the texts of one epoch's row, '' for a missing value."""
    values = dict(row)
    if "grpo_steps" in row:
        values["steps"] = f"{row['grpo_steps']}+{row['rwr_steps']}"
    cells = {
        title: template.format(values[name]) if values.get(name) is not None else ""
        for title, (name, template) in EPOCH_COLUMNS.items()
    }
    notes = [
        f"{policy} {row[f'{policy}_action']}: {row[f'{policy}_note']}".rstrip(": ")
        for policy in Policy
        if row.get(f"{policy}_action", UpdateAction.UPDATED) != UpdateAction.UPDATED
    ]
    if row.get("attempts_lost"):
        notes.append(f"{row['attempts_lost']} attempts lost: genenv sql 'FROM failures'")
    if row.get("tasks_refilled"):
        notes.append(f"{row['tasks_refilled']} tasks refilled")
    gates: dict[str, str] = row.get("gates") or {}
    notes += [f"{policy} gate {why}" for policy, why in gates.items()]
    if row.get("cached"):
        notes.append("cached")
    return {**cells, NOTES: "; ".join(notes)}


class TableInBlocks(Table):
    """A table that goes on below itself where it is wider than the terminal.

    Each block begins with the first column, which tells the rows apart. A squeezed table would cut
    its numbers, and would fold its remarks to a letter a line.
    """

    def blocks(self, console: Console, width: int) -> list[list[int]]:
        """Return the columns of each block that fits into `width` characters, the first in all."""
        needs = [self._need(console, column) for column in self.columns]
        first, *others = range(len(needs))
        found = [[first]]
        for place in others:
            # The last column of a block needs no space behind it.
            if len(found[-1]) > 1 and sum(needs[one] for one in (*found[-1], place)) > width + 1:
                found.append([first])
            found[-1].append(place)
        return found

    def _need(self, console: Console, column: Column) -> int:
        """Return the least width of a column: all of it, or room for words where it may fold."""
        cells = [column.header, *column.cells]
        whole = max(Measurement.get(console, console.options, cell).maximum for cell in cells)
        return 1 + (whole if column.no_wrap else min(whole, FOLDED))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the blocks as tables."""
        if not self.columns:
            return
        cells = [list(column.cells) for column in self.columns]
        for places in self.blocks(console, options.max_width):
            table = Table(
                *(self.columns[place].copy() for place in places),
                box=None,
                pad_edge=False,
                header_style="bold",
                padding=(0, 1, 0, 0),
            )
            for row in range(len(self.rows)):
                table.add_row(*(cells[place][row] for place in places))
            yield table


def epoch_table(rows: list[dict[str, Any]]) -> TableInBlocks:
    """Return the table of epochs; that of remarks is there where an epoch has one."""
    cells = [epoch_cells(row) for row in rows]
    noted = any(cell[NOTES] for cell in cells)
    table = plain_table()
    for title in EPOCH_COLUMNS:
        table.add_column(title, justify="right", no_wrap=True)
    if noted:
        table.add_column(NOTES, style="dim", overflow="fold", ratio=1)
    for cell in cells:
        table.add_row(*(text for title, text in cell.items() if noted or title != NOTES))
    return table


def evidence_table(rows: list[dict[str, Any]]) -> TableInBlocks:
    """Return the table that shows how far to trust each epoch, from the rows of the view."""
    cells: list[dict[str, str]] = []
    for row in rows:
        inside = {None: None, True: "inside", False: "outside"}[row["alpha_inside"]]
        measured = "P(answer)" if row["measure"] == "answer_probability" else row["measure"]
        named = {**row, "alpha_is": inside, "measured": measured}
        known = {name: value for name, value in named.items() if value is not None}
        cells.append({title: _formatted(text, known) for title, text in EVIDENCE_COLUMNS.items()})
    shown = [
        title
        for title in EVIDENCE_COLUMNS
        if title not in ONLY_WHERE_KNOWN or any(cell[title] for cell in cells)
    ]
    table = plain_table()
    for title in shown:
        table.add_column(title, justify="right", no_wrap=True)
    for cell in cells:
        table.add_row(*(escape(cell[title]) for title in shown))
    return table


def _formatted(template: str, values: dict[str, Any]) -> str:
    try:
        return template.format(**values)
    except KeyError:
        return ""


def measured_line(facts: dict[str, Any]) -> str:
    """Return what a measurement came to, from the facts of its stage."""
    if "certified" in facts:
        return certified_line(facts)
    metric = get_benchmark(facts["benchmark"]).headline
    value = facts["metrics"].get(metric)
    points = "no value" if value is None else f"{100 * value:.1f} of 100"
    left = sum(facts["not_run"].values())
    return f"{facts['benchmark']}: {metric} {points}, {facts['items']} items" + (
        f", {left} not run" if left else ""
    )


def certified_line(facts: dict[str, Any]) -> str:
    """Return what the certificate of a task set came to, from the facts of its stage."""
    return (
        f"{facts['certified']}: {facts['flawed']} of {facts['tasks']} tasks have a flaw; checks of "
        f"{facts['verdicts']} verdicts: {counted_worths(facts['checks'].values())}"
    )


WORTH_STYLES = {"pass": "green", "fail": "bold red", "cannot say": "yellow"}
"""Styles of the verdicts on checks, in the order in which they are counted."""


def counted_worths(worths: Iterable[str]) -> str:
    """Return how many verdicts on checks are which."""
    counts = Counter(str(worth) for worth in worths)
    return ", ".join(f"{counts[word]} {word}" for word in WORTH_STYLES if counts[word])


def plain_table() -> TableInBlocks:
    """Return an empty table in the house look, which no terminal is too narrow for."""
    return TableInBlocks()


def console(*, width: int = 140) -> Console:
    """Return a console for results; `width` is for an output that is no terminal."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=width)


def show_needs(lines: list[str], remarks: list[str]) -> None:
    """Print the memory that updates will need, and remarks."""
    out = console()
    for line in lines:
        out.print(f"  memory of {line} (estimated)", markup=False)
    for remark in remarks:
        out.print(f"  warning: {remark}", markup=False, style="bold yellow", soft_wrap=True)


def taken_from(entries: list[Planned]) -> list[str]:
    """Return what would be taken from each other root, a line each."""
    from genenv_core.report.words import first_to_last

    lines: list[str] = []
    for root in dict.fromkeys(entry.root for entry in entries if entry.root):
        epochs = [entry.epoch for entry in entries if entry.root == root]
        first, last = min(epochs), max(epochs)
        which = f"{'epoch' if first == last else 'epochs'} {first_to_last(first, last)}"
        lines.append(f"from {root}: {len(epochs)} of the reused stages, of {which}")
    return lines


def show_plan(
    entries: list[Planned],
    config: RunConfig,
    predicted: dict[str, Any],
    point: BranchPoint | None,
    *,
    as_json: bool,
) -> None:
    """Print a plan: a grid of epochs and stages, reasons of misses, where it branches off.

    As JSON, what is `predicted` is in it.
    """
    if as_json:
        names = ("epoch", "stage", "status", "key", "changed", "root")
        rows = [{name: getattr(entry, name) for name in names} for entry in entries]
        branch = point.model_dump() if point else None
        values = {"run_id": config.run_id, "branch": branch, "stages": rows}
        print(json_text({**values, "predicted": predicted}))
        return
    out = console()
    stages = list(dict.fromkeys(entry.stage for entry in entries))
    table = plain_table()
    table.add_column("epoch", justify="right")
    for stage in stages:
        table.add_column(STAGES[stage].column)
    for epoch in sorted({entry.epoch for entry in entries}):
        status = {entry.stage: entry.status for entry in entries if entry.epoch == epoch}
        table.add_row(str(epoch), *(STATUS_MARKS.get(status.get(s, ""), "") for s in stages))
    out.print(f"run [bold]{config.run_id}[/] in {config.root}")
    if point:
        out.print(point.words, markup=False)
    out.print(table)
    for entry in entries:
        for line in entry.changed:
            out.print(f"  epoch {entry.epoch} {entry.stage}: {line}", markup=False)
    for line in taken_from(entries):
        out.print(f"  {line}", markup=False)
    counts = {name: sum(e.status == name for e in entries) for name in STATUS_MARKS}
    out.print(
        f"{counts['hit']} reused, {counts['miss']} to compute, "
        f"{counts['unknown']} known once what they read is computed"
    )
