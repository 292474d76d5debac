"""The tables of runs, found through their manifests and opened for reading."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import duckdb
import polars as pl

from genenv_core.errors import IntegrityError, NotFound, QueryError
from genenv_core.storage import paths
from genenv_core.storage.canonical import canonical_json
from genenv_core.storage.catalog import RunSource, connect
from genenv_core.storage.local import LocalStore
from genenv_core.storage.manifest import Manifest
from genenv_core.storage.runs import RunInfo, RunLog, list_runs
from schemas.registry import schema

log = logging.getLogger("genenv.storage")


def open_pools(store: LocalStore, runs: Sequence[str] = ()) -> duckdb.DuckDBPyConnection:
    """Return a read-only DuckDB over the tables of runs, all of the store's by default.

    Raises QueryError for an unknown run.
    """
    known = list_runs(store)
    for run in runs:
        if run not in known:
            raise QueryError(f"there is no run {run!r}; known: {', '.join(known) or 'none'}")
    return connect([source(store, run) for run in runs or known])


def source(store: LocalStore, run_id: str) -> RunSource:
    """Return the files and small tables of one run, as far as it got."""
    run = RunLog(store, run_id)
    info = run.info()
    files: dict[str, list[str]] = {}
    for epoch in range(int(info.config["epochs"]) + 1):
        for stage, key in run.keys(epoch).items():
            manifest = _manifest(store, stage, key)
            for part in manifest.parts if manifest else ():
                if part.table and part.rows:
                    listed = files.setdefault(part.table, [])
                    url = store.url(part.path)
                    # Arm static reads one set of tasks in every epoch.
                    if url not in listed:
                        listed.append(url)
    return RunSource(
        run_id=run_id,
        arm=str(info.config["arm"]),
        files=files,
        frames={"stage_runs": _attempts(run), "runs": _run_row(info)},
    )


def _manifest(store: LocalStore, stage: str, key: str) -> Manifest | None:
    path = paths.manifest(stage, key)
    try:
        return Manifest.from_bytes(store.read(path))
    except NotFound:
        return None
    except IntegrityError as error:
        log.warning("manifest=%s unreadable, its rows are left out: %s", path, error)
        return None


def _attempts(run: RunLog) -> pl.DataFrame:
    rows = [attempt.model_dump(exclude={"process"}) for attempt in run.attempts()]
    return pl.DataFrame(rows, schema=schema("stage_runs"), orient="row")


def _run_row(info: RunInfo) -> pl.DataFrame:
    config: dict[str, Any] = info.config
    row = {
        "run_id": info.run_id,
        "arm": config["arm"],
        "domain": config["domain"]["name"],
        "seed": config["seed"],
        "epochs_planned": config["epochs"],
        "started_at": info.started_at,
        "config": canonical_json(config).decode(),
    }
    return pl.DataFrame([row], schema=schema("runs"), orient="row")
