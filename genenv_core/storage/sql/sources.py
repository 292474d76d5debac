"""The tables of runs, found through their manifests and opened for reading."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import duckdb
import polars as pl

from genenv_core.canonical import canonical_json
from genenv_core.config.branching import BranchPoint
from genenv_core.errors import (
    IntegrityError,
    QueryError,
    SchemaError,
    StorageError,
    TablesError,
    one_line,
)
from genenv_core.storage import paths
from genenv_core.storage.records.branches import origin_of
from genenv_core.storage.records.labels import Labels, read_labels
from genenv_core.storage.records.manifest import Part
from genenv_core.storage.records.parquet import check_file, read_parquet
from genenv_core.storage.records.runs import (
    TRACKED,
    RunInfo,
    RunLog,
    is_there,
    leave_out,
    list_runs,
    unknown_run,
)
from genenv_core.storage.records.segments import Layout, attempts_digest, layout, parts_of
from genenv_core.storage.sql.catalog import RunSource, connect
from genenv_core.storage.store.protocol import Store
from genenv_core.storage.upkeep.compaction import attempts_frame
from schemas.registry import schema
from schemas.validate import validate

log = logging.getLogger("genenv.storage")

Answer = TypeVar("Answer")


def open_tables(
    store: Store,
    runs: Sequence[str] = (),
    *,
    memory: str = "1GB",
    tables: Collection[str] | None = None,
    described: bool = False,
) -> duckdb.DuckDBPyConnection:
    """Return a read-only DuckDB over the tables of runs, all of the store's by default.

    With `tables`, only these have rows. `described` is as in `connect`. Raises QueryError for an
    unknown run.
    """

    def opened(found: list[RunSource]) -> duckdb.DuckDBPyConnection:
        return connect(found, memory_limit=memory, described=described)

    return answered(store, runs, opened, tables=tables)


def answered(
    store: Store,
    runs: Sequence[str],
    question: Callable[[list[RunSource]], Answer],
    *,
    tables: Collection[str] | None = None,
    only: tuple[str, str] | None = None,
) -> Answer:
    """Return what `question` gives for the tables of runs, all of the store's by default.

    A question about all runs leaves out, with a warning, a run whose files cannot be read.
    Arguments and errors are those of `sources`, and what `question` raises.
    """
    found = sources(store, runs, tables=tables, only=only)
    try:
        return question(found)
    except (TablesError, SchemaError):
        if runs:
            raise
        # Looked up anew: a run that writes may have replaced files in between.
        fitting = with_fitting_files(store, sources(store, tables=tables, only=only))
        if [one.files for one in fitting] == [one.files for one in found]:
            raise
        return question(fitting)


def with_fitting_files(store: Store, found: Sequence[RunSource]) -> list[RunSource]:
    """Return the runs whose files this genenv can read; logs a warning for each other run."""
    return [one for one in found if not leave_out(store, one.run_id, misfit(one))]


def look_at_runs(store: Store) -> None:
    """Log a warning for each run of a folder that this genenv cannot read.

    It reads the footers of the tables of each run's last epoch. In an object store that would cost
    many requests, so it does nothing there.
    """
    if "://" in store.uri:
        return
    for run in list_runs(store):
        log = RunLog(store, run)
        files: dict[str, list[str]] = {}
        for stage, key in log.keys(max(log.epochs(), default=0)).items():
            for part in parts_of(store, stage, key) if stage != TRACKED else ():
                if part.table and part.rows:
                    files[part.table] = store.files([part.path])
        leave_out(store, run, misfit(RunSource(run, "", files)))


def misfit(one: RunSource) -> str:
    """Return why files of a run cannot be read, by their footers; '' if they can."""
    try:
        for table, files in one.files.items():
            for file in files:
                check_file(table, file)
        for table, frame in one.frames.items():
            validate(table, frame)
    except (StorageError, SchemaError) as error:
        return str(error)
    return ""


def sources(
    store: Store,
    runs: Sequence[str] = (),
    *,
    tables: Collection[str] | None = None,
    only: tuple[str, str] | None = None,
) -> list[RunSource]:
    """Return the files and small tables of runs, all of the store's by default.

    `tables` restricts them to these tables. `only` is a table and an id: of that table, only files
    that can have a row with this id count. Raises QueryError for an unknown run.
    """
    store = store.snapshot()
    for run in runs:
        if unknown := unknown_run(store, run):
            raise QueryError(unknown)
    found: list[RunSource] = []
    for run in runs or list_runs(store):
        try:
            found.append(source(store, run, tables=tables, only=only))
        except StorageError as error:
            if runs:
                raise
            if is_there(store, run):  # else it was dropped since it was listed
                leave_out(store, run, str(error))
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
    row = _run_row(run.info(), read_labels(store, run_id), origin_of(store, run_id))
    found = layout(store, run, row["epochs_planned"])
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
        "runs": lambda: pl.DataFrame([row], schema=schema("runs"), orient="row"),
    }
    return RunSource(
        run_id=run_id,
        arm=row["arm"],
        files=files,
        frames={name: make() for name, make in frames.items() if tables is None or name in tables},
    )


def _can_have(part: Part, ident: str) -> bool:
    """Return whether a row of a part may have this id, by the bounds in its manifest."""
    if part.first_id is None or part.last_id is None:
        return True
    return part.first_id <= ident <= part.last_id


def _history(store: Store, run: RunLog, found: Layout) -> pl.DataFrame:
    """Return the attempts of a run, oldest first.

    An epoch whose events are still those of its merged file comes from there, others from events.
    """
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
    # Each epoch's attempts know already which was the last one: only the order is left to make.
    return pl.concat([*frames, rest]).sort("started_at", "epoch", maintain_order=True)


def _run_row(info: RunInfo, labels: Labels, point: BranchPoint | None) -> dict[str, Any]:
    """Return a row of `runs`; raises IntegrityError for a configuration that it cannot read."""
    config: dict[str, Any] = info.config
    try:
        facts = {
            "arm": str(config["arm"]),
            "domain": str(config["domain"]["name"]),
            "seed": int(config["seed"]),
            "epochs_planned": int(config["epochs"]),
        }
    except (KeyError, TypeError, ValueError) as error:
        path = paths.run_config(info.run_id)
        raise IntegrityError(
            f"{path}: it holds no configuration that this genenv reads: {one_line(error)}"
        ) from error
    return {
        "run_id": info.run_id,
        **facts,
        "started_at": info.started_at,
        "config": canonical_json(config).decode(),
        "tags": list(labels.tags),
        "note": labels.note,
        "pinned": labels.pinned,
        "branch_of": point.run_id if point else None,
        "branch_epoch": point.epoch if point else None,
        "fixed_tasks": canonical_json(info.fixed_tasks).decode() if info.fixed_tasks else None,
    }
