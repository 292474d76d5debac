"""The list of a root's runs: what `genenv runs` filters, and `genenv status` shows whole."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from rich.text import Text

from flows.shown.json_text import json_text
from flows.shown.tables import console, plain_table
from genenv_core.config.branching import BranchPoint
from genenv_core.errors import ConfigError
from genenv_core.report.outcome import how_far
from genenv_core.storage.sql.catalog import RunSource, connect, query, tables_named
from genenv_core.storage.sql.sources import answered
from genenv_core.storage.store.protocol import Store

WIDEST = 10_000
"""Columns of a list that is no terminal's: a run is a line, so that other programs can read it."""

MEASURED = "coalesce((r.config ->> '$.benchmark.model'), (r.config ->> '$.benchmark.url'))"
"""What a run measures; null for one that trains."""

RUNS = f"""SELECT r.run_id, r.arm, r.seed, r.epochs_planned, r.started_at,
    count(e.epoch) AS epochs_done, arg_max(e.p_hat, e.epoch) AS p_hat,
    arg_max(e.heldout_success, e.epoch) AS heldout_success, r.domain,
    {MEASURED} AS measured, any_value(b.points) / 100 AS headline, any_value(m.items) AS items,
    any_value(m.of_items) AS of_items, r.tags, r.note, r.pinned, r.branch_of, r.branch_epoch
FROM runs r LEFT JOIN epochs e USING (run_id)
LEFT JOIN measured m ON m.run_id = r.run_id
LEFT JOIN (FROM benchmarks WHERE headline) b USING (run_id)
GROUP BY ALL ORDER BY r.started_at"""


NEWEST = f"""SELECT r.run_id FROM runs r LEFT JOIN stage_runs s USING (run_id)
WHERE {MEASURED} IS NULL GROUP BY r.run_id
ORDER BY coalesce(max(s.started_at), any_value(r.started_at)) DESC, r.run_id LIMIT 1"""


def newest_run(store: Store) -> str:
    """Return the run that was at work last, leaving measurements out.

    Raises ConfigError for a root without a run.
    """

    def found(sources: list[RunSource]) -> list[str]:
        with connect(sources) as connection:
            return query(connection, NEWEST)["run_id"].to_list()

    names = answered(store, (), found, tables=tables_named(NEWEST))
    if not names:
        raise ConfigError(f"{store.uri} has no run that trains: start one with `genenv run`")
    return names[0]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which runs to list: those that fit every field that is neither empty nor None.

    `name` is a pattern with * and ?; `finished` is whether all planned epochs are done.
    """

    tags: tuple[str, ...] = ()
    arm: str = ""
    domain: str = ""
    name: str = ""
    pinned: bool | None = None
    finished: bool | None = None

    def fits(self, row: dict[str, Any]) -> bool:
        """Return whether a row of the list is one of them."""
        done = row["epochs_done"] >= row["epochs_planned"]
        if row["measured"] is not None:
            done = bool(row["items"])
        return (
            set(self.tags) <= set(row["tags"])
            and self.arm in ("", row["arm"])
            and self.domain in ("", row["domain"])
            and (not self.name or fnmatchcase(row["run_id"], self.name))
            and self.pinned in (None, row["pinned"])
            and self.finished in (None, done)
        )


def show_runs(store: Store, *, as_json: bool, where: Filter | None = None) -> None:
    """Print the runs of a root: how far each is, where it stands, and its labels."""

    def listed(found: list[RunSource]) -> list[dict[str, Any]]:
        with connect(found) as connection:
            return query(connection, RUNS).to_dicts()

    rows = answered(store, (), listed, tables=tables_named(RUNS))
    rows = [row for row in rows if where is None or where.fits(row)]
    if as_json:
        print(json_text(rows))
        return
    said = any(row["note"] for row in rows)
    labelled = any(row["tags"] or row["pinned"] for row in rows)
    branches = any(row["branch_of"] is not None for row in rows)
    titles = ["run", "arm", "seed", "epochs", "p_hat", "test", "started"]
    table = plain_table()
    for title in titles + ["branch of"] * branches + ["tags"] * labelled:
        # A name that is cut short could not be given to another command.
        table.add_column(title, no_wrap=title in ("run", "started"), overflow="fold")
    if said:
        table.add_column("note", overflow="fold", ratio=1)
    for row in rows:
        measures = row["measured"] is not None
        cells = [
            row["run_id"],
            f"eval {row['domain']}" if measures else row["arm"],
            str(row["seed"]),
            how_far(
                {**row, "epochs": row["epochs_done"], "planned": row["epochs_planned"]}
            ).replace(" of ", "/"),
            number(row["p_hat"], 2),
            number(row["headline"] if measures else row["heldout_success"], 3),
            f"{row['started_at']:%Y-%m-%d %H:%M} UTC",
        ]
        cells += [str(point_of(row) or "")] * branches
        cells += [tags_of(row)] * labelled + [row["note"]] * said
        table.add_row(*(Text(printable(cell)) for cell in cells))
    out = console(width=WIDEST)
    if rows:
        out.print(table)
    elif where is not None:
        out.print("no run of this root fits")


def tags_of(row: dict[str, Any]) -> str:
    """Return the tags of a row of `runs`, a pin in front."""
    return ", ".join((["pinned"] if row["pinned"] else []) + list(row["tags"]))


def point_of(row: dict[str, Any]) -> BranchPoint | None:
    """Return where a row of `runs` branches off, None for a run of its own."""
    if row["branch_of"] is None:
        return None
    return BranchPoint(run_id=row["branch_of"], epoch=row["branch_epoch"])


def printable(text: str) -> str:
    """Return a text without characters that move the cursor or change colours."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def number(value: Any, digits: int) -> str:
    """Return a number for a table, '' for None."""
    return "" if value is None else f"{value:.{digits}f}"
