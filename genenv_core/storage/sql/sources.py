"""The tables of runs, found through their manifests and opened for reading."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any

import duckdb
import polars as pl

from genenv_core.config.branching import BranchPoint
from genenv_core.errors import NotFound, QueryError, StorageError
from genenv_core.storage.canonical import canonical_json
from genenv_core.storage.records.branches import origin_of
from genenv_core.storage.records.labels import Labels, read_labels
from genenv_core.storage.records.manifest import Part
from genenv_core.storage.records.parquet import read_parquet
from genenv_core.storage.records.runs import RunInfo, RunLog, list_runs, unknown_run
from genenv_core.storage.records.segments import Layout, attempts_digest, layout
from genenv_core.storage.sql.catalog import RunSource, connect
from genenv_core.storage.store.protocol import Store
from genenv_core.storage.upkeep.compaction import attempts_frame
from schemas.registry import schema

log = logging.getLogger("genenv.storage")


def open_tables(
    store: Store,
    runs: Sequence[str] = (),
    *,
    memory: str = "1GB",
    tables: Collection[str] | None = None,
    described: bool = False,
) -> duckdb.DuckDBPyConnection:
    """Return a read-only DuckDB over the tables of runs, all of the store's by default.

    Of `tables` alone, when given, there are rows. `described` is as in
    `connect`. Raises QueryError for an unknown run.
    """
    found = sources(store, runs, tables=tables)
    return connect(found, memory_limit=memory, described=described)


def sources(
    store: Store,
    runs: Sequence[str] = (),
    *,
    tables: Collection[str] | None = None,
    only: tuple[str, str] | None = None,
) -> list[RunSource]:
    """Return the files and small tables of runs, all of the store's by default.

    With `tables`, those of these tables alone; with `only`, a table and an id, of that table only
    files that can have a row with that id. Raises QueryError for an unknown run.
    """
    store = store.snapshot()
    for run in runs:
        if unknown := unknown_run(store, run):
            raise QueryError(unknown)
    found: list[RunSource] = []
    for run in runs or list_runs(store):
        try:
            found.append(source(store, run, tables=tables, only=only))
        except NotFound:  # dropped since it was listed
            if runs:
                raise
    return found


def source(
    store: Store,
    run_id: str,
    *,
    tables: Collection[str] | None = None,
    only: tuple[str, str] | None = None,
) -> RunSource:
    """Return the files and small tables of one run, as far as it got."""
    run = RunLog(store, run_id)
    info = run.info()
    found = layout(store, run, int(info.config["epochs"]))
    parts = [
        (table, part.path)
        for span in found.spans
        for table, listed in span.tables.items()
        for part in (listed if tables is None or table in tables else ())
        if only is None or table != only[0] or _can_have(part, only[1])
    ]
    files: dict[str, list[str]] = {}
    for (table, _), file in zip(parts, store.files([path for _, path in parts]), strict=True):
        files.setdefault(table, []).append(file)
    frames = {
        "stage_runs": lambda: _history(store, run, found),
        "runs": lambda: _run_row(info, read_labels(store, run_id), origin_of(store, run_id)),
    }
    return RunSource(
        run_id=run_id,
        arm=str(info.config["arm"]),
        files=files,
        frames={name: make() for name, make in frames.items() if tables is None or name in tables},
    )


def _can_have(part: Part, ident: str) -> bool:
    """Return whether a row of a part may have this id, by the bounds in its manifest."""
    if part.first_id is None or part.last_id is None:
        return True
    return part.first_id <= ident <= part.last_id


def _history(store: Store, run: RunLog, found: Layout) -> pl.DataFrame:
    """Return the attempts of a run, oldest first: merged where no event came since, else read."""
    events = run.events()
    frames: list[pl.DataFrame] = []
    merged: set[int] = set()
    for segment in found.spans:
        if not segment.level:
            continue
        same = {
            epoch.epoch
            for epoch in segment.epochs
            if attempts_digest(events.get(epoch.epoch, ())) == epoch.attempts
        }
        try:
            read = [read_parquet("stage_runs", store.local(p.path)) for p in segment.history]
        except StorageError as error:
            log.warning("run=%s merged history is left out: %s", run.run_id, error)
            continue
        frames += [frame.filter(pl.col("epoch").is_in(sorted(same))) for frame in read]
        merged |= same
    rest = attempts_frame(run.attempts(events.keys() - merged))
    # The attempts of an epoch decide which was the last one: only the order is left.
    return pl.concat([*frames, rest]).sort("started_at", "epoch", maintain_order=True)


def _run_row(info: RunInfo, labels: Labels, point: BranchPoint | None) -> pl.DataFrame:
    config: dict[str, Any] = info.config
    row = {
        "run_id": info.run_id,
        "arm": config["arm"],
        "domain": config["domain"]["name"],
        "seed": config["seed"],
        "epochs_planned": config["epochs"],
        "started_at": info.started_at,
        "config": canonical_json(config).decode(),
        "tags": list(labels.tags),
        "note": labels.note,
        "pinned": labels.pinned,
        "branch_of": point.run_id if point else None,
        "branch_epoch": point.epoch if point else None,
    }
    return pl.DataFrame([row], schema=schema("runs"), orient="row")
