"""Reads and prints the state of a run, for `genenv status`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from flows.cli.options import check_run
from flows.cli.runs.listing import MEASURED, point_of, printable, tags_of
from flows.cli.runs.predicted import afterwards_table, prediction_errors
from flows.running.previous import live_view
from flows.shown.json_text import json_text
from flows.shown.tables import SEVERITY_STYLES, console, epoch_table, evidence_table, plain_table
from genenv_core.addresses import at_root, page_of
from genenv_core.config.load import as_recorded
from genenv_core.config.stages import LAST, STAGES
from genenv_core.config.until import stages_of
from genenv_core.epoch.trouble import troubles
from genenv_core.errors import ConfigError
from genenv_core.evidence.beginning import progress_of, reached
from genenv_core.report.outcome import (
    TOLD_HERE,
    Outcome,
    read_outcome,
    tables_of_outcome,
)
from genenv_core.report.words import first_to_last
from genenv_core.spending.spent import reached as reached_limits
from genenv_core.spending.spent import spent_on
from genenv_core.spending.stop import facts_of, said_of
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.draws import read_draws
from genenv_core.storage.records.endings import Ending, read_ending
from genenv_core.storage.records.runs import RunLog, StageAttempt
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

REUSED = "SELECT * FROM reused ORDER BY first_epoch, first_at, stage"

TROUBLED = (*TOLD_HERE, "evaluate", "benchmark")
"""Stages whose facts can say that an epoch teaches nothing, or that a measurement says little."""

DONE = (StageState.COMPUTED, StageState.CACHED)
FAILED = "stage_failed"
"""The rule of a finding that says what the line of the failed stage says."""

STATE_STYLES = {
    StageState.COMPUTED: "green",
    StageState.CACHED: "cyan",
    StageState.RUNNING: "yellow",
    StageState.FAILED: "bold red",
    StageState.INTERRUPTED: "magenta",
}


def show_run(
    store: Store, run: str, *, as_json: bool, everything: bool = False, predicted: bool = False
) -> None:
    """Print one run: its epochs, what became of each stage, and how to go on.

    With `predicted`, also what earlier runs predicted, for which it reads their histories.
    """
    picture = _picture(store, run)
    predictions = prediction_errors(store, run) if predicted else []
    if as_json:
        found: dict[str, Any] = {"run_id": run, **picture.said, "epochs": picture.epochs}
        found["evidence"], found["reused"] = picture.evidence, picture.reused
        found["warnings"], found["bootstrap"] = picture.troubles, picture.bootstrap
        found |= picture.outcome.values
        if picture.ending:
            found["ended_after"] = picture.ending.model_dump(include={"stage", "epoch"})
        if predicted:
            found["predicted"] = predictions
        if picture.stopped:
            found["status"], found["stopped"] = "stopped", picture.stopped
        found["stages"] = [a.model_dump(mode="json") for a in picture.last.values()]
        found["unfinished"] = [
            {**a.model_dump(mode="json"), "progress": picture.progress.get((a.epoch, a.stage), "")}
            for a in picture.open_ends
        ]
        print(json_text(found))
        return
    console().print(_rendered(store, picture, everything=everything))
    if page := page_of(run, base=live_view(store.home)):
        console().print(f"in a browser: {page}", soft_wrap=True)
    if predictions:
        console().print("", afterwards_table(predictions), sep="\n")
    elif predicted:
        console().print("\nno run of like shape began before this one: nothing was predicted")


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

    `planned` is None for a run that measures a model, which has no epochs. `said` are its tags,
    note and pin, `reused` rows of the view of that name. `ending` is where a command ended the run
    as asked, unless a later command goes on with it. `stopped` are the facts of a run at a limit,
    else empty. `progress` says how far running stages are, `bootstrap` what the start reached.
    `troubles` are what stages say of an epoch and no finding of `outcome` does.
    """

    run: str
    planned: int | None
    epochs: list[dict[str, Any]]
    evidence: list[dict[str, Any]]
    last: dict[tuple[int, str], StageAttempt]
    said: dict[str, Any]
    reused: list[dict[str, Any]]
    troubles: list[str]
    ending: Ending | None
    stopped: dict[str, Any]
    progress: dict[tuple[int, str], str]
    bootstrap: list[str]
    outcome: Outcome

    @property
    def open_ends(self) -> list[StageAttempt]:
        """Return the newest attempts that have no end, or failed."""
        return [a for a in self.last.values() if a.state not in DONE]

    @property
    def ended(self) -> bool:
        """Return whether every epoch is published, or nothing is at work.

        Nothing is at work when something failed, and when a command ended the run as asked.
        """
        if self.planned is None:
            complete = bool(self.last) and not self.open_ends
        else:
            published = {epoch for epoch, stage in self.last if stage == LAST}
            complete = len(published) == self.planned + 1 and not self.open_ends
        if self.stopped:
            return True
        stuck = self.open_ends and all(a.state is not StageState.RUNNING for a in self.open_ends)
        stopped = self.ending is not None and not self.open_ends
        return complete or bool(stuck) or stopped


def _picture(store: Store, run: str) -> _Picture:
    check_run(store, run)
    # Before the attempts: what a command that takes the run on has begun by then is seen below.
    ending = read_ending(store, run)
    tables = tables_named("FROM epochs, evidence, runs, stage_runs, reused") | tables_of_outcome()
    with open_tables(store, [run], tables=tables) as connection:
        epochs = query(connection, "SELECT * FROM epochs ORDER BY epoch").to_dicts()
        evidence = query(connection, "SELECT * FROM evidence ORDER BY epoch").to_dicts()
        stored = (
            f"SELECT CASE WHEN {MEASURED} IS NULL THEN epochs_planned END AS planned, "
            "tags, note, pinned, branch_of, branch_epoch FROM runs AS r"
        )
        (said,) = query(connection, stored).to_dicts()
        # The files of attempts are read once, for this table, and not those of merged epochs.
        newest = query(connection, NEWEST).to_dicts()
        reused = query(connection, REUSED).to_dicts()
        outcome = read_outcome(connection, run)
    last = {(row["epoch"], row["stage"]): StageAttempt.model_validate(row) for row in newest}
    return _Picture(
        run=run,
        planned=said.pop("planned"),
        epochs=epochs,
        evidence=evidence,
        last=last,
        said=said,
        reused=reused,
        troubles=_troubles(store, run, last, outcome),
        ending=ending,
        stopped=_stopped(store, run, last),
        progress=progress_of(store, newest),
        bootstrap=reached(store, run),
        outcome=outcome,
    )


def _stopped(
    store: Store, run: str, last: Mapping[tuple[int, str], StageAttempt]
) -> dict[str, Any]:
    """Return why a run stops at its limits, what is spent and left, and how to go on; else {}."""
    log = RunLog(store, run)
    try:
        config = as_recorded(log.info().config, run, {"root": store.uri, "run_id": run})
    except ConfigError:  # of another version of genenv
        return {}
    if not config.limits.given or any(a.state is StageState.RUNNING for a in last.values()):
        return {}
    left = [one for one in stages_of(config) if one not in last or last[one].state not in DONE]
    spent = spent_on(log.attempts(), config)
    limits = reached_limits(spent, config.limits)
    if not (left and limits):
        return {}
    return {"message": said_of(limits, left), **facts_of(config, limits, spent, left)}


def _troubles(
    store: Store, run: str, last: Mapping[tuple[int, str], StageAttempt], outcome: Outcome
) -> list[str]:
    """Return what stages say is wrong with the newest epochs, without what a finding says.

    The views know some of an epoch before it is published, such as the attempts.
    """
    log, artifacts, found = RunLog(store, run), Artifacts(store), dict[str, None]()
    newest = max((epoch for epoch, _ in last), default=0)
    for epoch in range(max(0, newest - 1), newest + 1):
        for stage, key in log.keys(epoch).items():
            told = stage in TOLD_HERE and (epoch, LAST) in last
            manifest = artifacts.find(stage, key) if stage in TROUBLED and not told else None
            facts = manifest.facts if manifest else {}
            if stage in TOLD_HERE:
                facts = {
                    name: fact for name, fact in facts.items() if not outcome.says(name, epoch)
                }
            found |= dict.fromkeys(troubles(facts))
    return list(found)


def _rendered(store: Store, picture: _Picture, *, everything: bool) -> Group:
    done = f"{len(picture.epochs)} of {picture.planned} epochs"
    if picture.planned is None:
        done = (
            "a model on a benchmark or a task set (its result: genenv resume; in SQL: FROM "
            "benchmarks, FROM certified_sets)"
        )
    parts: list[RenderableType] = [f"run [bold]{picture.run}[/] in {store.uri}: {done}"]
    parts += [Text(line) for line in picture.outcome.lines]
    if point := point_of(picture.said):
        parts.append(Text(point.words))
    if labels := tags_of(picture.said):
        parts.append(Text(f"labels: {labels}"))
    if picture.said["note"]:
        parts.append(Text(f"note: {printable(picture.said['note'])}"))
    draws = read_draws(store, picture.run)
    for name, number in draws.numbers.items():
        waiting = ", not carried through yet" if name in draws.open else ""
        parts.append(f"drawn anew: {name}, {number + 1} draws{waiting}")
    shown = picture.epochs if everything else picture.epochs[-LAST_EPOCHS:]
    if shown:
        parts += [epoch_table(shown), ""]
        believed = picture.evidence if everything else picture.evidence[-LAST_EPOCHS:]
        parts += [evidence_table(believed), ""]
    if picture.last:
        parts.append(_grid(picture, everything=everything))
    if picture.reused:
        parts += ["", _reused(picture)]
    parts += [Text(f"start: {line}") for line in picture.bootstrap]
    for attempt in picture.open_ends:
        # Only the first line of what went wrong; all of it is in stage_runs.
        words = attempt.error or picture.progress.get((attempt.epoch, attempt.stage))
        parts.append(
            Text.assemble(
                (attempt.state, STATE_STYLES[attempt.state]),
                f" {attempt.stage} of epoch {attempt.epoch}, attempt {attempt.attempt} "
                f"({attempt.host} pid {attempt.pid})",
                f": {words}" if words else "",
            )
        )
    parts += [Text(f"warning: {text}", style="bold yellow") for text in picture.troubles]
    parts += [
        Text(f"{one.severity}: {one.line}", style=SEVERITY_STYLES[one.severity])
        for one in picture.outcome.recent
        if one.rule != FAILED  # the stage stands above, with its error
    ]
    go_on = escape(f"genenv resume {picture.run}{at_root(store.uri)}")
    if picture.stopped:
        parts.append(Text(f"stopped by a limit: {picture.stopped['message']}", style="bold yellow"))
        parts.append(f"go on with a higher limit: [bold]{escape(picture.stopped['go_on'])}[/]")
    elif picture.ending and not picture.open_ends:
        parts.append(f"ended after {picture.ending}, as asked; go on with: [bold]{go_on}[/]")
    elif any(attempt.state is not StageState.RUNNING for attempt in picture.open_ends):
        parts.append(f"continue with: [bold]{go_on}[/]")
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


def _reused(picture: _Picture) -> Table:
    """Return the reused stages: who computed them, when, and how long that took then."""
    table = plain_table()
    for title in ("reused", "epochs", "computed by", "when", "took then"):
        table.add_column(title)
    for row in picture.reused:
        first, last, at, seconds = (
            row[name] for name in ("first_epoch", "last_epoch", "first_at", "seconds")
        )
        table.add_row(
            row["stage"],
            ("" if row["epochs"] > last - first else f"{row['epochs']} of ")
            + first_to_last(first, last),
            _computed_by(row),
            f"{at:%Y-%m-%d %H:%M} UTC" if at else "",
            "" if seconds is None else f"{seconds:.1f} s",
        )
    return table


def _computed_by(row: dict[str, Any]) -> str:
    """Return which run computed a reused stage, with its root if that is another one."""
    run = row["computed_by"] or "not noted"
    return f"{run} of {row['computed_root']}" if row["computed_root"] else run


def _cell(attempt: StageAttempt | None) -> Text:
    if attempt is None:
        return Text("")
    text = attempt.state
    if attempt.state is StageState.COMPUTED and attempt.seconds is not None:
        text = f"{attempt.seconds:.1f} s"
    return Text(text, style=STATE_STYLES[attempt.state])
