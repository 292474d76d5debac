"""The pages: each module asks the questions of its page, and passes the answers to a template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flows.view.reading import Panel, Reader
from genenv_core.errors import NotFound
from genenv_core.storage.sql.duck import text


@dataclass(frozen=True, slots=True)
class Page:
    """A page before it becomes text: its template, its title, and the template's values.

    A page that `streams` goes out in pieces: its template writes `{{ sent }}` before it calls a
    slow value, and the reader sees all before that meanwhile.
    """

    template: str
    title: str
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    status: int = 200
    streams: bool = False


def filled(panel: Panel) -> Panel:
    """Return a panel without the columns that are null in every row."""
    known = {name for row in panel for name, value in row.items() if value is not None}
    return replace(panel, columns=[name for name in panel.columns if name in known])


def about(reader: Reader, run: str) -> Panel:
    """Return the row of a run; raises NotFound for an unknown run."""
    found = reader.panel(
        "run", "the run",
        "SELECT run_id, arm, domain, seed, epochs_planned, started_at, tags, note, pinned, "
        f"branch_of, branch_epoch, config FROM runs WHERE run_id = {text(run)}",
    )  # fmt: skip
    require(reader, [run], found)
    return found


def require(reader: Reader, runs: Sequence[str], found: Panel) -> None:
    """Raise NotFound for the first of these runs without a row among those found."""
    known = {row["run_id"] for row in found}
    for run in runs:
        if run not in known:
            raise NotFound(f"there is no run {run!r} in {reader.store.uri}")
