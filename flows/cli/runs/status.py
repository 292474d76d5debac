"""What `genenv status` shows."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from flows.cli.options import check_run
from flows.cli.tables import console, epoch_table, evidence_table, plain_table
from genenv_core.config.stages import LAST, STAGES
from genenv_core.storage.records.runs import Attempt
from genenv_core.storage.sql.catalog import query, tables_named
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.protocol import Store
from schemas.enums import StageState

WATCH_S = 1.0
LAST_EPOCHS = 20
"""Epochs shown unless all are asked for."""

NEWEST = """SELECT * EXCLUDE (arm) FROM stage_runs
QUALIFY row_number() OVER (PARTITION BY epoch, stage ORDER BY attempt DESC) = 1
ORDER BY started_at, epoch"""

MEASURED = "coalesce((r.config ->> '$.benchmark.model'), (r.config ->> '$.benchmark.url'))"
"""What a run measures; null for one that trains."""

DONE = (StageState.COMPUTED, StageState.CACHED)
STATE_STYLES = {
    StageState.COMPUTED: "green",
    StageState.CACHED: "cyan",
    StageState.RUNNING: "yellow",
    StageState.FAILED: "bold red",
    StageState.INTERRUPTED: "magenta",
}


def show_runs(store: Store, *, as_json: bool) -> None:
    """Print every run of a root: how far it is and where it stands."""
    with open_tables(store) as connection:
        frame = query(
            connection,
            "SELECT r.run_id, r.arm, r.seed, r.epochs_planned, r.started_at, "
            "count(e.epoch) AS epochs_done, arg_max(e.p_hat, e.epoch) AS p_hat, "
            "arg_max(e.heldout_success, e.epoch) AS heldout_success, r.domain, "
            f"{MEASURED} AS measured, any_value(b.points) / 100 AS headline "
            "FROM runs r LEFT JOIN epochs e USING (run_id) "
            "LEFT JOIN (FROM benchmarks WHERE headline) b USING (run_id) "
            "GROUP BY ALL ORDER BY r.started_at",
        )
    rows = frame.to_dicts()
    if as_json:
        print(json.dumps(rows, default=str))
        return
    table = plain_table()
    for title in ("run", "arm", "seed", "epochs", "p_hat", "test", "started"):
        table.add_column(title)
    for row in rows:
        measures = row["measured"] is not None
        table.add_row(
            row["run_id"],
            f"eval {row['domain']}" if measures else row["arm"],
            str(row["seed"]),
            "" if measures else f"{row['epochs_done']}/{row['epochs_planned']}",
            _number(row["p_hat"], 2),
            _number(row["headline"] if measures else row["heldout_success"], 3),
            f"{row['started_at']:%Y-%m-%d %H:%M} UTC",
        )
    console().print(table)


def show_run(store: Store, run: str, *, as_json: bool, everything: bool = False) -> None:
    """Print one run: its epochs, what became of each stage, and how to go on."""
    picture = _picture(store, run)
    if as_json:
        found: dict[str, Any] = {"run_id": run, "epochs": picture.epochs}
        found["evidence"] = picture.evidence
        found["stages"] = [a.model_dump(mode="json") for a in picture.last.values()]
        found["unfinished"] = [a.model_dump(mode="json") for a in picture.open_ends]
        print(json.dumps(found, default=str))
        return
    console().print(_rendered(store, picture, everything=everything))


def watch_run(store: Store, run: str) -> None:
    """Draw one run again every second, until it has ended or Ctrl-C."""
    with Live(console=console(), auto_refresh=False, vertical_overflow="visible") as live:
        while True:
            picture = _picture(store, run)
            live.update(_rendered(store, picture, everything=False), refresh=True)
            if picture.ended:
                return
            time.sleep(WATCH_S)


@dataclass(frozen=True)
class _Picture:
    """What is known of a run at one moment; `last` is the newest attempt at each stage.

    `planned` is None for a run that measures a model, which has no epochs.
    """

    run: str
    planned: int | None
    epochs: list[dict[str, Any]]
    evidence: list[dict[str, Any]]
    last: dict[tuple[int, str], Attempt]

    @property
    def open_ends(self) -> list[Attempt]:
        """Return the newest attempts that did not come to an end, or to a bad one."""
        return [a for a in self.last.values() if a.state not in DONE]

    @property
    def ended(self) -> bool:
        """Return whether every epoch is published, or nothing is at work and something failed."""
        if self.planned is None:
            complete = bool(self.last) and not self.open_ends
        else:
            published = {epoch for epoch, stage in self.last if stage == LAST}
            complete = len(published) == self.planned + 1 and not self.open_ends
        stuck = self.open_ends and all(a.state is not StageState.RUNNING for a in self.open_ends)
        return complete or bool(stuck)


def _picture(store: Store, run: str) -> _Picture:
    check_run(store, run)
    tables = tables_named("FROM epochs, evidence, runs, stage_runs")
    with open_tables(store, [run], tables=tables) as connection:
        epochs = query(connection, "SELECT * FROM epochs ORDER BY epoch").to_dicts()
        evidence = query(connection, "SELECT * FROM evidence ORDER BY epoch").to_dicts()
        told = f"SELECT CASE WHEN {MEASURED} IS NULL THEN epochs_planned END FROM runs AS r"
        planned = query(connection, told).item()
        # The files of attempts are read once, for this table, and not those of merged epochs.
        newest = query(connection, NEWEST).to_dicts()
    last = {(row["epoch"], row["stage"]): Attempt.model_validate(row) for row in newest}
    return _Picture(run, planned, epochs, evidence, last)


def _rendered(store: Store, picture: _Picture, *, everything: bool) -> Group:
    done = f"{len(picture.epochs)} of {picture.planned} epochs"
    if picture.planned is None:
        done = "a model on a benchmark (its result: genenv resume, or FROM benchmarks in SQL)"
    parts: list[RenderableType] = [f"run [bold]{picture.run}[/] in {store.uri}: {done}"]
    shown = picture.epochs if everything else picture.epochs[-LAST_EPOCHS:]
    if shown:
        parts += [epoch_table(shown), ""]
        believed = picture.evidence if everything else picture.evidence[-LAST_EPOCHS:]
        parts += [evidence_table(believed), ""]
    if picture.last:
        parts.append(_grid(picture, everything=everything))
    for attempt in picture.open_ends:
        # Only the first line of what went wrong; all of it is in stage_runs.
        parts.append(
            Text.assemble(
                (attempt.state, STATE_STYLES[attempt.state]),
                f" {attempt.stage} of epoch {attempt.epoch}, attempt {attempt.attempt} "
                f"({attempt.host} pid {attempt.pid})",
                f": {attempt.error}" if attempt.error else "",
            )
        )
    if any(attempt.state is not StageState.RUNNING for attempt in picture.open_ends):
        parts.append(f"continue with: [bold]genenv resume {picture.run} --root {store.uri}[/]")
    return Group(*parts)


def _grid(picture: _Picture, *, everything: bool) -> Table:
    """Return epochs x stages: seconds where computed, else the state of the last attempt."""
    stages = [name for name in STAGES if any(stage == name for _, stage in picture.last)]
    epochs = sorted({epoch for epoch, _ in picture.last})
    table = plain_table()
    table.add_column("epoch", justify="right")
    for stage in stages:
        table.add_column(STAGES[stage].column, justify="right")
    for epoch in epochs if everything else epochs[-LAST_EPOCHS:]:
        cells = [_cell(picture.last.get((epoch, stage))) for stage in stages]
        table.add_row(str(epoch), *cells)
    return table


def _cell(attempt: Attempt | None) -> Text:
    if attempt is None:
        return Text("")
    text = attempt.state
    if attempt.state is StageState.COMPUTED and attempt.seconds is not None:
        text = f"{attempt.seconds:.1f} s"
    return Text(text, style=STATE_STYLES[attempt.state])


def _number(value: Any, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
