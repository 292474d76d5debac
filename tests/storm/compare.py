"""The differences between a root with kills and one without: one line for each."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from genenv_core.canonical import file_sha256
from genenv_core.storage import paths
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.manifest import Manifest
from genenv_core.storage.records.runs import TRACKED, RunLog
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.leases import Lease
from genenv_core.storage.store.opening import home_of, open_store
from genenv_core.storage.store.process import has_ended
from genenv_core.storage.store.protocol import Store
from genenv_core.storage.upkeep.verify import verify
from schemas.registry import TABLES
from schemas.relations import SQL_NAMES

HISTORY = ("stage_runs", "runs")
TRACKED_SQL = {
    "runs": "SELECT name, status FROM runs",
    "params": "SELECT key, value FROM params WHERE key <> 'root'",
    "metrics": "SELECT key, value, step FROM metrics",
    "versions": "SELECT name, version FROM model_versions",
    "version tags": "SELECT name, version, key, value FROM model_version_tags",
    "aliases": "SELECT name, alias, version FROM registered_model_aliases",
}
"""What MLflow keeps of a run, without its own ids, times and folders."""


Root = Path | str


def differences(reference: Root, root: Root, run: str) -> list[str]:
    """Return how a finished run differs from the same run in the reference root."""
    return [*_manifests(reference, root, run), *_tables(reference, root, run), *_state(root)] + [
        f"MLflow's {name}: {_excess(before, after)}"
        for name, before, after in _both(reference, root, _tracked)
        if before != after
    ]


def manifests(root: Root, run: str) -> dict[str, Manifest]:
    """Return every manifest of a run by epoch and stage."""
    store = _store(root)
    log = RunLog(store, run)
    epochs = range(len(store.list(f"runs/{run}/epochs")))
    return {
        f"{epoch} {stage}": Manifest.from_bytes(store.read(paths.manifest(stage, key)))
        for epoch in epochs
        for stage, key in log.keys(epoch).items()
        if stage != TRACKED
    }


def weights(root: Root, run: str) -> dict[str, str]:
    """Return the digest of every file of every checkpoint of a run, as laid out for loaders."""
    artifacts = Artifacts(_store(root))
    return {
        f"{where} {path.name}": file_sha256(path)
        for where, manifest in manifests(root, run).items()
        for name in manifest.checkpoints
        for path in artifacts.checkpoint(manifest, name).iterdir()
    }


def _store(root: Root) -> Store:
    return open_store(str(root), writable=False)


def _manifests(reference: Root, root: Root, run: str) -> Iterator[str]:
    kinds = {
        "manifest": lambda folder: {k: m.digest for k, m in manifests(folder, run).items()},
        "weights": lambda folder: weights(folder, run),
    }
    for kind, read in kinds.items():
        before, after = read(reference), read(root)
        for where in sorted(before.keys() | after.keys()):
            if before.get(where) != after.get(where):
                yield f"{kind} of {where}: {before.get(where)} is {after.get(where)}"


def _tables(reference: Root, root: Root, run: str) -> Iterator[str]:
    with (
        open_tables(_store(reference), [run]) as before,
        open_tables(_store(root), [run]) as after,
    ):
        for table, spec in TABLES.items():
            if table in HISTORY:
                continue
            text = f"SELECT * FROM {SQL_NAMES.get(table, table)} ORDER BY ALL"
            rows = query(after, text)
            if not rows.equals(query(before, text)):
                yield f"table {table}: other rows ({rows.height})"
            if rows.select(spec.key).is_duplicated().any():
                yield f"table {table}: a row is there twice"


def _state(root: Root) -> Iterator[str]:
    store = _store(root)
    report = verify(store)
    for damage in report.damaged:
        yield f"{damage.path}: {damage.problem}"
    for path in report.unknown:
        yield f"{path}: unknown"
    for path in store.list("leases"):
        # A kill between a commit and the end of its lease leaves one that nobody asks for again.
        lease = Lease.from_bytes(store.read(path))
        if not has_ended(lease.pid, lease.process):
            yield f"{path}: still held"


def _tracked(root: Root) -> dict[str, list[Any]]:
    with sqlite3.connect(home_of(str(root)) / "mlflow" / "mlflow.db") as database:
        return {name: sorted(database.execute(sql).fetchall()) for name, sql in TRACKED_SQL.items()}


def _both(reference: Root, root: Root, read: Any) -> Iterator[tuple[str, list[Any], list[Any]]]:
    before, after = read(reference), read(root)
    return ((name, before[name], after[name]) for name in before)


def _excess(before: list[Any], after: list[Any]) -> str:
    missing = [row for row in before if row not in after]
    return f"{len(after)} rows instead of {len(before)}; missing {missing[:3]}"
