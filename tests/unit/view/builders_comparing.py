"""Roots of several runs whose results on test tasks are known, and the page that compares them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from starlette.testclient import TestClient

from flows.view.app import application
from flows.view.reading import Reader
from genenv_core.canonical import sha256
from genenv_core.storage.records.artifacts import ArtifactWriter
from genenv_core.storage.records.keys import key_parts, stage_key
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from tests.unit.builders_root import START, rows_of
from tests.unit.view.reading_pages import Shown, tables

CURRICULUM = {"alpha": 0.5, "k_min": 0.25}
"""Settings that a chart draws as a band."""

Results = Mapping[int, Mapping[str, float]]
"""P(answer) of each test task by its id, in each epoch."""


def play(
    store: LocalStore, run: str, results: Results, *, arm: str = "genenv", seed: int = 0,
    sampled: bool = False, skill: float = 0.5, **changes: Any,
) -> None:  # fmt: skip
    """Write a run with these results; `sampled` ones are attempts that succeeded or failed.

    Each epoch is one stage, `publish`, whose key depends on the seed and the changes.
    """
    log = RunLog(store, run)
    config = {"arm": arm, "domain": {"name": "desk"}, "seed": seed, "epochs": len(results) - 1}
    log.open({**config, "curriculum": CURRICULUM, "root": run, "run_id": run, **changes}, START)
    for epoch, values in results.items():
        given = {"code": "v1", "config": changes, "inputs": {"made": sha256(run.encode())}}
        parts = key_parts(stage="publish", seed=seed, epoch=epoch, runtime={}, **given)
        writer = ArtifactWriter(store, "publish", parts, stage_key(parts))
        writer.table("evaluations", evaluations(epoch, values, sampled=sampled))
        rows = rows_of("epochs", 1).with_columns(epoch=pl.lit(epoch, pl.Int64), skill=pl.lit(skill))
        writer.table("epochs", rows if epoch else rows.clear())
        writer.commit({})
        log.note_key(epoch, "publish", stage_key(parts))


def evaluations(epoch: int, values: Mapping[str, float], *, sampled: bool) -> pl.DataFrame:
    """Return a row a test task, with its P(answer), or with its success for `sampled` ones."""
    row = rows_of("evaluations", 1).head(1)
    answers = pl.Series(list(values.values()), dtype=pl.Float64)
    rows = pl.concat([row] * len(values)).with_columns(
        epoch=pl.lit(epoch, pl.Int64), measured_epoch=pl.lit(epoch, pl.Int64),
        task_id=pl.Series(list(values)),
        answer_probability=answers,
    )  # fmt: skip
    if not sampled:
        return rows
    return rows.with_columns(success=answers > 0.5, answer_probability=pl.lit(None, pl.Float64))


def tasks(values: Sequence[float], first: int = 0) -> dict[str, float]:
    """Return values by the ids of test tasks."""
    return {f"test-{place:03d}": value for place, value in enumerate(values, first)}


def got(store: LocalStore, runs: Sequence[str], by: str) -> str:
    """Return the page of these runs beside each other, a line for each run, arm or settings."""
    with TestClient(application(store), base_url="http://localhost") as browser:
        answer = browser.get("/compare", params={"run": runs, "by": by})
    assert answer.status_code == 200, answer.text
    return answer.text


def panel(page: str, name: str) -> Shown:
    """Return a table of a page."""
    return next(one for one in tables(page) if one.name == name)


@contextmanager
def reading(root: Path | LocalStore) -> Iterator[Reader]:
    """Yield a reader of a root, and close it."""
    reader = Reader(root if isinstance(root, LocalStore) else LocalStore(root))
    try:
        yield reader
    finally:
        reader.close()
