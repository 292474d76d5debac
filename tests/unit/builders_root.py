"""A small root on disk, committed stage by stage as in a run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from genenv_core.canonical import sha256
from genenv_core.storage.records.artifacts import ArtifactWriter
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.store.protocol import Store
from schemas.registry import TABLES
from tests.unit.builders_tables import sample_frame

HISTORY = ("stage_runs", "runs")
START = datetime(2026, 11, 1, tzinfo=UTC)


def small_root(root: Path, run_id: str = "run-a", epochs: int = 2) -> LocalStore:
    """Return the store of a run with every table, one stage an epoch."""
    store = LocalStore(root)
    fill(store, run_id, epochs)
    return store


def fill(store: Store, run_id: str = "run-a", epochs: int = 2) -> None:
    """Write a run with every table, one stage an epoch."""
    config = {"arm": "genenv", "domain": {"name": "desk"}, "seed": 0, "epochs": epochs}
    log = RunLog(store, run_id)
    log.open(config, START)
    for epoch in range(epochs + 1):
        commit_epoch(store, log, epoch)


def commit_epoch(store: Store, log: RunLog, epoch: int) -> None:
    """Commit one stage with the sample rows of an epoch, under the run's own key."""
    key = sha256(f"{log.run_id} {epoch}".encode())
    writer = ArtifactWriter(store, "pool", {"run": log.run_id, "epoch": epoch}, key)
    for table in TABLES:
        if table not in HISTORY:
            writer.table(table, rows_of(table, epoch))
    writer.commit({})
    log.note_key(epoch, "pool", key)


def rows_of(table: str, epoch: int) -> pl.DataFrame:
    """Return the sample rows of an epoch; later epochs repeat the rows of the first two."""
    frame = sample_frame(table)
    like = 1 + (epoch - 1) % 2 if epoch else 0
    if table in ("benchmark_metrics", "certified_sets"):  # of a whole run
        return frame if epoch == 1 else frame.clear()
    if "epoch" not in frame.columns:
        ident = TABLES[table].id_column
        own = frame.filter(pl.col(ident).str.starts_with(f"e{like:04d}"))
        return own.with_columns((f"e{epoch:04d}" + pl.col(ident).str.slice(5)).alias(ident))
    own = frame.filter(pl.col("epoch") == like)
    numbers = [name for name in ("epoch", "measured_epoch") if name in frame.columns]
    return own.with_columns(pl.lit(epoch, dtype=pl.Int64).alias(name) for name in numbers)
