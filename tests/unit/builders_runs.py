"""Runs with tiny tables, written by the real writers: as many epochs as a test wants, at once."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import polars as pl

from genenv_core.canonical import digest
from genenv_core.storage import paths
from genenv_core.storage.records.artifacts import Artifacts, ArtifactWriter
from genenv_core.storage.records.manifest import Manifest
from genenv_core.storage.records.runs import RunLog, StageAttempt
from genenv_core.storage.store.local import LocalStore
from tests.unit.builders_tables import world

START = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)

EPOCH_STAGES: dict[str, tuple[str, ...]] = {
    "generate_tasks": ("tasks", "certificates", "contexts", "generations"),
    "rollout": ("traces", "trace_tokens", "trainer_logprobs"),
    "score": ("scores", "observations", "task_scores"),
    "filter": ("selections",),
    "pool": ("d_train", "d_env"),
    "grpo_update": ("update_samples",),
    "rwr_update": ("update_samples",),
    "evaluate": ("evaluations", "evaluation_texts"),
    "publish": ("checkpoints", "epochs"),
}
WRITTEN = {table for tables in EPOCH_STAGES.values() for table in tables}
"""The tables of an epoch."""

POLICY_OF = {"grpo_update": "agent", "rwr_update": "env"}


@contextlib.contextmanager
def without_fsync() -> Iterator[None]:
    """Turn off fsync inside the block, so that a thousand epochs take a minute."""
    real = os.fsync
    os.fsync = lambda fd: None
    try:
        yield
    finally:
        os.fsync = real


@cache
def _template(table: str) -> pl.DataFrame:
    """Return a table's rows of one epoch."""
    frame = world(4)[table]
    return frame.filter(pl.col("epoch") == 1) if "epoch" in frame.columns else frame


def rows_of(table: str, epoch: int, variant: int = 0) -> pl.DataFrame:
    """Return a table's rows of an epoch; their ids name the epoch and the variant."""
    frame = _template(table)
    prefix = f"e{epoch:04d}v{variant}-"
    ids = [name for name in frame.columns if name.endswith("_id")]
    changed = [(pl.lit(prefix) + pl.col(name)).alias(name) for name in ids]
    if "epoch" in frame.columns:
        changed.append(pl.lit(epoch, frame.schema["epoch"]).alias("epoch"))
    return frame.with_columns(changed)


def _tables_of(stage: str, epoch: int, variant: int) -> dict[str, pl.DataFrame]:
    """Return the tables that a stage writes."""
    if stage == "bootstrap":
        return {"tasks": world(4)["tasks"].filter(pl.col("epoch") == 0)}
    frames = {name: rows_of(name, epoch, variant) for name in EPOCH_STAGES[stage]}
    if "update_samples" in frames:
        mine = pl.col("policy") == POLICY_OF[stage]
        frames["update_samples"] = frames["update_samples"].filter(mine)
    return frames


def key_of(stage: str, epoch: int, variant: int = 0, seed: int = 0) -> str:
    """Return the key of a stage."""
    return digest([stage, epoch, variant, seed])


def write_stage(
    store: LocalStore,
    stage: str,
    epoch: int,
    *,
    variant: int = 0,
    seed: int = 0,
    tables: Mapping[str, pl.DataFrame] | None = None,
    weights: bool = False,
    facts: Mapping[str, Any] | None = None,
) -> Manifest:
    """Commit one stage's output; with `weights`, also the checkpoints that the stage makes."""
    key = key_of(stage, epoch, variant, seed)
    writer = ArtifactWriter(store, stage, {"epoch": epoch, "seed": seed}, key)
    if tables is None:
        tables = _tables_of(stage, epoch, variant)
    for table, frame in tables.items():
        writer.table(table, frame)
    policies = ("agent", "env") if stage == "bootstrap" else (POLICY_OF.get(stage),)
    for policy in policies if weights else ():
        if policy is not None:
            _write_weights(store, writer, policy, f"{policy} {epoch} {variant} {seed}")
    all_facts = dict(facts or {})
    if stage == "publish":
        all_facts = {"published": {"agent": True, "env": True}, "is_best": False, **all_facts}
    manifest, _ = writer.commit(all_facts)
    return manifest


def _write_weights(store: LocalStore, writer: ArtifactWriter, policy: str, text: str) -> None:
    folder = store.scratch()
    (folder / "model.safetensors").write_bytes(text.encode() * 100)
    (folder / "tokenizer.json").write_bytes(b"[]" * 20)  # the same in every checkpoint
    writer.checkpoint(policy, folder)
    shutil.rmtree(folder)


def attempt_at(
    run_id: str, epoch: int, stage: str, key: str, *, cached: bool = False, at: datetime = START
) -> StageAttempt:
    """Return an attempt at a stage, as it begins."""
    about = {"run_id": run_id, "epoch": epoch, "stage": stage, "stage_key": key, "started_at": at}
    state = "cached" if cached else "running"
    return StageAttempt.model_validate({**about, "state": state, "host": "h", "pid": 1})


def write_epoch(
    store: LocalStore,
    run_id: str,
    epoch: int,
    *,
    variant: int = 0,
    seed: int = 0,
    weights: bool = False,
    stages: Iterable[str] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> dict[str, Manifest]:
    """Write an epoch (0 is bootstrap) and note its keys as a run does; reuses existing outputs."""
    log, made = RunLog(store, run_id), dict[str, Manifest]()
    default = ("bootstrap",) if epoch == 0 else tuple(EPOCH_STAGES)
    for index, stage in enumerate(default if stages is None else stages):
        key = key_of(stage, epoch, variant, seed)
        found = Artifacts(store).find(stage, key)
        started = START + timedelta(minutes=epoch, seconds=index)
        attempt = attempt_at(run_id, epoch, stage, key, cached=found is not None, at=started)
        if found is None:
            attempt = log.begin(attempt)
            found = write_stage(
                store,
                stage,
                epoch,
                variant=variant,
                seed=seed,
                weights=weights,
                facts=facts if stage == "publish" else None,
            )
            log.note_key(epoch, stage, key)
            log.end(attempt.model_copy(update={"state": "computed", "seconds": 1.0, "rows": 4}))
        elif log.note_key(epoch, stage, key):
            log.begin(attempt)
        made[stage] = found
    if epoch == 0 and stages is None:
        log.note_key(0, "publish", write_publish_zero(store, seed).key)
    return made


def write_publish_zero(store: LocalStore, seed: int = 0) -> Manifest:
    """Commit the publish stage of bootstrap, without rows."""
    found = Artifacts(store).find("publish", key_of("publish", 0, 0, seed))
    return found or write_stage(store, "publish", 0, seed=seed, tables={}, facts={"is_best": True})


def open_run(store: LocalStore, run_id: str, epochs: int) -> RunLog:
    """Open a run of `epochs` epochs."""
    log = RunLog(store, run_id)
    log.open(
        {"epochs": epochs, "arm": "genenv", "domain": {"name": "desk"}, "seed": 0},
        START,
    )
    return log


def write_run(
    store: LocalStore,
    run_id: str,
    epochs: int,
    *,
    seed: int = 0,
    weights: bool = False,
    best: int = 0,
) -> RunLog:
    """Write a finished run; `best` is the epoch of its best agent."""
    log = open_run(store, run_id, epochs)
    for epoch in range(epochs + 1):
        facts = {"is_best": epoch == best}
        write_epoch(store, run_id, epoch, seed=seed, weights=weights, facts=facts)
    return log


def age(store: LocalStore, hours: float = 48.0) -> None:
    """Make every file of a store `hours` older."""
    for path in sorted(store.root.rglob("*")):
        then = path.stat().st_mtime - hours * 3600
        os.utime(path, (then, then))


def spoil(store: LocalStore, path: str) -> None:
    """Flip one bit in the middle of a file."""
    file = store.root / path
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.chmod(0o644)
    file.write_bytes(data)


def manifest_of(store: LocalStore, run: RunLog, epoch: int, stage: str) -> Manifest:
    """Return the manifest of a stage of a run."""
    return Manifest.from_bytes(store.read(paths.manifest(stage, run.keys(epoch)[stage])))
