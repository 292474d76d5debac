"""`genenv diff`: how two runs of a root differ, and what came out of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.options import Json, Root, check_run, existing
from flows.shown.json_text import json_text
from genenv_core.errors import ConfigError

if TYPE_CHECKING:
    from genenv_core.storage.records.differing import Differing
    from genenv_core.storage.store.protocol import Store

RESULTS = {
    "p_hat": "p_hat",
    "share_in_band": "in the band",
    "heldout_success": "test, sampled",
    "heldout_success_greedy": "test, greedy",
    "heldout_answer_probability": "test, P(answer)",
    "validation_success": "validation",
    "kl_env": "KL of pi_env",
}
"""Columns of `epochs` that are compared, and their names for people."""

Run = Annotated[str, typer.Argument(metavar="RUN", help="A run of the root.")]


def diff(one: Run, other: Run, root: Root = None, as_json: Json = False) -> None:
    """Show how two runs differ: configuration, data, code, versions, first stage, results."""
    from genenv_core.storage.records.differing import differing

    store = existing(root)
    for run in (one, other):
        check_run(store, run)
    if one == other:
        raise ConfigError(f"{one!r} is given twice: name two runs")
    found = differing(store, one, other)
    epoch, results = _results(store, one, other)
    if as_json:
        values = {"runs": [one, other], **asdict(found), "epoch": epoch, "results": results}
        print(json_text(values))
        return
    _show(one, other, found, epoch, results)


def _results(store: Store, one: str, other: str) -> tuple[int | None, dict[str, Any]]:
    """Return the last epoch that both runs have, and each result there with its two values."""
    from genenv_core.storage.sql.catalog import query, tables_named
    from genenv_core.storage.sql.sources import open_tables

    with open_tables(store, [one, other], tables=tables_named("FROM epochs")) as connection:
        rows = query(connection, "SELECT * FROM epochs ORDER BY epoch").to_dicts()
    by_run = {
        run: {row["epoch"]: row for row in rows if row["run_id"] == run} for run in (one, other)
    }
    shared = by_run[one].keys() & by_run[other].keys()
    if not shared:
        return None, {}
    last = max(shared)
    pairs = {name: [by_run[run][last][name] for run in (one, other)] for name in RESULTS}
    return last, {name: pair for name, pair in pairs.items() if any(v is not None for v in pair)}


def _show(
    one: str, other: str, found: Differing, epoch: int | None, results: dict[str, Any]
) -> None:
    from flows.shown.tables import console, plain_table

    out = console()

    def say(text: str) -> None:
        out.print(text, markup=False, soft_wrap=True)

    say(f"from {one} to {other}")
    for run, origin in zip((one, other), found.branches, strict=True):
        if origin:
            say(f"{run} is a {origin}")
    for title, lines in (
        ("configuration", found.configuration),
        ("data", found.data),
        ("code", found.code),
        ("versions", found.versions),
    ):
        say(f"{title}: {'differs' if lines else 'no difference'}")
        for line in lines:
            say(f"  {line}")
    say(f"stages: {found.same} of {found.compared} that both have are the same" + _alone(found))
    if found.first:
        say(f"first that differs: {found.first.stage} of epoch {found.first.epoch}")
        for line in found.first.reasons:
            say(f"  {line}")
    if epoch is None:
        say("results: there is no epoch that both have finished")
        return
    say(f"results of epoch {epoch}, the last that both have finished")
    table = plain_table()
    table.add_column("")
    for title in (one, other, "change"):
        table.add_column(title, justify="right")
    for name, (before, after) in results.items():
        cells = ["" if value is None else f"{value:.3f}" for value in (before, after)]
        change = "" if before is None or after is None else f"{after - before:+z.3f}"
        table.add_row(RESULTS[name], *cells, change)
    out.print(table)


def _alone(found: Differing) -> str:
    """Return how many stages one of the runs has alone, in words."""
    counts = [
        f"{count} only the {which} has"
        for count, which in zip(found.only, ("first", "second"), strict=True)
        if count
    ]
    return f"; {', '.join(counts)}" if counts else ""
