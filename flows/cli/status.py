"""What `genenv status` shows."""

from __future__ import annotations

import json
from typing import Any

from flows.cli.tables import console, epoch_table, plain_table
from genenv_core.errors import ConfigError
from genenv_core.storage.catalog import query
from genenv_core.storage.local import LocalStore
from genenv_core.storage.pools import open_pools
from genenv_core.storage.runs import RunLog, list_runs


def show_runs(store: LocalStore, _: str, *, as_json: bool) -> None:
    """Print every run of a root: how far it is and where it stands."""
    with open_pools(store) as connection:
        frame = query(
            connection,
            "SELECT r.run_id, r.arm, r.seed, r.epochs_planned, r.started_at, "
            "count(e.epoch) AS epochs_done, arg_max(e.p_hat, e.epoch) AS p_hat, "
            "arg_max(e.heldout_success, e.epoch) AS heldout_success "
            "FROM runs r LEFT JOIN epochs e USING (run_id) GROUP BY ALL ORDER BY r.started_at",
        )
    rows = frame.to_dicts()
    if as_json:
        print(json.dumps(rows, default=str))
        return
    table = plain_table()
    for title in ("run", "arm", "seed", "epochs", "p_hat", "held-out", "started"):
        table.add_column(title)
    for row in rows:
        table.add_row(
            row["run_id"],
            row["arm"],
            str(row["seed"]),
            f"{row['epochs_done']}/{row['epochs_planned']}",
            _number(row["p_hat"], 2),
            _number(row["heldout_success"], 3),
            f"{row['started_at']:%Y-%m-%d %H:%M} UTC",
        )
    console().print(table)


def show_run(store: LocalStore, run: str, *, as_json: bool) -> None:
    """Print one run: its epochs, and the stages that failed or are at work."""
    known = list_runs(store)
    if run not in known:
        raise ConfigError(f"there is no run {run!r} here; known: {', '.join(known) or 'none'}")
    with open_pools(store, [run]) as connection:
        epochs = query(connection, "SELECT * FROM epochs ORDER BY epoch").to_dicts()
    attempts = RunLog(store, run).attempts()
    last = {(a.epoch, a.stage): a for a in attempts}
    open_ends = [a for a in last.values() if a.state in ("failed", "interrupted", "running")]
    if as_json:
        print(
            json.dumps(
                {
                    "run_id": run,
                    "epochs": epochs,
                    "unfinished": [a.model_dump(mode="json") for a in open_ends],
                },
                default=str,
            )
        )
        return
    out = console()
    out.print(f"run [bold]{run}[/] in {store.uri}")
    out.print(epoch_table(epochs) if epochs else "no epoch is finished yet")
    for attempt in open_ends:
        out.print(
            f"[yellow]{attempt.state}[/] {attempt.stage} of epoch {attempt.epoch}, "
            f"attempt {attempt.attempt} (pid {attempt.pid}): {attempt.error or 'no end noted'}"
        )
    if open_ends:
        out.print("the command that started the run continues it")


def _number(value: Any, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
