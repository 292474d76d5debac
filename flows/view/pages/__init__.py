"""The pages: each module asks the questions of its page, and gives the answers to a template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flows.view.reading import Panel, Reader
from genenv_core.errors import NotFound
from genenv_core.storage.sql.duck import text


@dataclass(frozen=True, slots=True)
class Page:
    """A page before it is text: its template, its title, and what the template needs.

    A page that `streams` is sent as it is made: its template says `{{ sent }}` before it calls a
    value that takes long, and all before that is with the reader meanwhile.
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
    """Return the row of a run; raises NotFound."""
    found = reader.panel(
        "run", "the run",
        "SELECT run_id, arm, domain, seed, epochs_planned, started_at, tags, note, pinned, "
        f"branch_of, branch_epoch, config FROM runs WHERE run_id = {text(run)}",
    )  # fmt: skip
    require(reader, [run], found)
    return found


def require(reader: Reader, runs: Sequence[str], found: Panel) -> None:
    """Raise NotFound, which names the first of these runs that has no row among those found."""
    known = {row["run_id"] for row in found}
    for run in runs:
        if run not in known:
            raise NotFound(f"there is no run {run!r} in {reader.store.uri}")
