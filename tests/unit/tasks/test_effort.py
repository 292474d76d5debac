"""What computing a stage took.

Invariants: tokens of every stage are those of the view `cost`; a stage without a model has none,
and a damaged input leaves them unknown; seconds and memory are those of the block, however it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from genenv_core.canonical import sha256
from genenv_core.storage.records.artifacts import Artifacts, ArtifactWriter, reference
from genenv_core.storage.records.manifest import ArtifactRef, Manifest
from genenv_core.storage.records.runs import RunLog, StageAttempt
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.local import LocalStore
from schemas.enums import StageState
from tasks.stage.effort import effort, resident, tokens_of
from tests.mutations import mutation
from tests.unit.builders_root import rows_of
from tests.unit.builders_stage import NO_INPUTS

WRITES = {
    "bootstrap": (),
    "generate_tasks": ("tasks",),
    "rollout": ("traces",),
    "score": ("scores",),
    "evaluate": ("evaluations",),
}
UPDATES = {"grpo_update": "agent", "rwr_update": "env"}


@dataclass(frozen=True)
class Drawn:
    """Inputs of an update, one of them twice."""

    pool: ArtifactRef
    traces: ArtifactRef
    generations: Sequence[ArtifactRef]


@pytest.fixture(name="log")
def a_run(tmp_path: Path) -> RunLog:
    log = RunLog(LocalStore(tmp_path), "run-a")
    config = {"arm": "genenv", "domain": {"name": "desk"}, "seed": 0, "epochs": 1}
    log.open(config, datetime.now(UTC))
    return log


def commit(root: Path, log: RunLog, stage: str, *tables: str) -> Manifest:
    """Commit a stage of epoch 1 with sample rows, as computed by the run."""
    key = sha256(stage.encode())
    writer = ArtifactWriter(LocalStore(root), stage, {}, key)
    for table in tables:
        rows = rows_of(table, 1)
        if table == "evaluations":  # half of them stand for this epoch, and cost it nothing
            again = pl.col("mode") == "greedy"
            rows = rows.with_columns(measured_epoch=pl.col("epoch") - again.cast(pl.Int64))
        if table == "tasks":  # the first text of pi_env holds two tasks
            written = rows.filter(pl.col("generation_id").is_not_null())
            second = written.head(1).with_columns(task_id=pl.col("task_id") + "-b")
            rows = pl.concat([rows, second]).sort("task_id")
        writer.table(table, rows)
    if stage in UPDATES:
        rows = rows_of("update_samples", 1)
        writer.table("update_samples", rows.filter(rows["policy"] == UPDATES[stage]))
    if stage == "grpo_update":
        writer.table("influence", rows_of("influence", 1))
    made, _ = writer.commit({})
    log.note_key(1, stage, key)
    began = datetime.now(UTC)
    state = StageState.COMPUTED
    log.begin(
        StageAttempt(
            run_id="run-a", epoch=1, stage=stage, stage_key=key, state=state, host="h", pid=1,
            started_at=began, seconds=1.0, rows=made.rows,
        )
    )  # fmt: skip
    return made


@mutation(
    "tokens of an evaluation count again where it stands", "tasks/stage/effort.py",
    "_sum(made, columns[:1])", "_sum(rows, columns[:1])",
)  # fmt: skip
@mutation(
    "what attribution reads costs nothing", "tasks/stage/effort.py",
    ' + _sum(read, ("tokens",))', "",
)  # fmt: skip
@mutation(
    "a text with several tasks is counted for each", "tasks/stage/effort.py",
    "    return tasks.unique([*_TASKS, *_WRITTEN])", "    return tasks",
)  # fmt: skip
def test_tokens_are_those_of_the_view_cost(tmp_path: Path, log: RunLog) -> None:
    made = {stage: commit(tmp_path, log, stage, *tables) for stage, tables in WRITES.items()}
    artifacts = Artifacts(LocalStore(tmp_path))
    texts = reference(made["generate_tasks"])
    drawn = Drawn(reference(made["score"]), reference(made["rollout"]), [texts, texts])
    found = {stage: tokens_of(one, NO_INPUTS, artifacts) for stage, one in made.items()}
    for stage in UPDATES:
        found[stage] = tokens_of(commit(tmp_path, log, stage), drawn, artifacts)
    with open_tables(LocalStore(tmp_path), ["run-a"]) as connection:
        rows = query(connection, "SELECT stage, tokens FROM cost").iter_rows()
    cost = dict(rows)
    assert {stage: tokens or None for stage, tokens in found.items()} == cost
    assert found["bootstrap"] is None and found["score"] is None
    assert sum(value is not None and value > 0 for value in found.values()) >= 4


def test_what_cannot_be_read_leaves_them_unknown(tmp_path: Path, log: RunLog) -> None:
    made = commit(tmp_path, log, "rollout", "traces")
    (tmp_path / made.parts[0].path).write_bytes(b"torn")
    assert tokens_of(made, NO_INPUTS, Artifacts(LocalStore(tmp_path))) is None


def test_seconds_and_memory_are_those_of_the_block() -> None:
    with pytest.raises(ValueError, match="no"), effort() as failed:
        raise ValueError("no")
    assert failed.seconds is not None and failed.peak_memory
    with effort() as took:
        held = bytearray(200_000_000)
        held[::4096] = b"x" * len(held[::4096])
        inside = resident()
    assert took.peak_memory is not None and took.peak_memory > 0.9 * inside > 180_000_000
    assert took.values["compute_seconds"] == took.seconds
