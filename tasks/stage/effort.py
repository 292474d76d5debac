"""Measures what a stage takes: seconds, tokens, memory. No key and no manifest holds them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast

import polars as pl
import psutil

from genenv_core.errors import GenenvError
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.manifest import ArtifactRef, Manifest
from genenv_core.storage.records.parquet import read_parquet
from tasks.stage.context import log
from tasks.stage.inputs import Inputs

SAMPLE_S = 0.5
"""Time between two looks at the memory of a stage at work."""

_TRACES = ("trace_id", "prompt_tokens", "response_tokens")
_TASKS = ("source", "epoch", "generation_index", "generation_id")
_WRITTEN = ("env_prompt_tokens", "generation_tokens")


@dataclass
class Effort:
    """What a computation took; None: unknown, or tokens of a stage without a model."""

    seconds: float | None = None
    tokens: int | None = None
    peak_memory: int | None = None

    @property
    def values(self) -> dict[str, Any]:
        """Return the fields of an attempt."""
        return {
            "compute_seconds": self.seconds,
            "tokens": self.tokens,
            "peak_memory": self.peak_memory,
        }


@contextlib.contextmanager
def effort() -> Generator[Effort]:
    """Measure the seconds and the memory of the block; fill them into the yielded record."""
    made, began, over = Effort(), time.perf_counter(), threading.Event()
    peak = 0

    def look() -> None:
        nonlocal peak
        peak = max(peak, resident())

    def watch() -> None:
        while not over.wait(SAMPLE_S):
            look()

    watcher = threading.Thread(target=watch, name="memory", daemon=True)
    watcher.start()
    try:
        yield made
    finally:
        over.set()
        watcher.join()
        made.seconds = round(time.perf_counter() - began, 4)
        look()
        made.peak_memory = peak or None


def resident() -> int:
    """Return the bytes of memory that this process and its children hold now."""
    found, own = 0, psutil.Process()
    with contextlib.suppress(psutil.Error):
        found += own.memory_info().rss
        for child in own.children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has ended
                found += child.memory_info().rss
    return found


def tokens_of(manifest: Manifest, inputs: Inputs, artifacts: Artifacts) -> int | None:
    """Return the tokens of a finished stage as the view `cost` counts them.

    None for a stage without a model. Where it cannot read the tables, it logs a warning and returns
    None: the stage is finished all the same.
    """
    try:
        match manifest.stage:
            case "rollout" | "benchmark":
                return _sum(_frame([manifest], "traces", _TRACES, artifacts), _TRACES[1:])
            case "evaluate":
                columns = ("response_tokens", "epoch", "measured_epoch")
                rows = _frame([manifest], "evaluations", columns, artifacts)
                made = rows.filter(pl.col("measured_epoch") == pl.col("epoch"))
                return _sum(made, columns[:1])
            case "generate_tasks":
                return _sum(_generations([manifest], artifacts), _WRITTEN)
            case "grpo_update":
                sources = _of_stage(inputs, "rollout", artifacts)
                known = _frame(sources, "traces", _TRACES, artifacts)
                read = _frame([manifest], "influence", ("tokens",), artifacts)
                drawn = _drawn(manifest, known, "trace_id", artifacts)
                return _sum(drawn, _TRACES[1:]) + _sum(read, ("tokens",))
            case "rwr_update":
                known = _generations(_of_stage(inputs, "generate_tasks", artifacts), artifacts)
                return _sum(_drawn(manifest, known, "generation_id", artifacts), _WRITTEN)
            case _:
                return None
    except (GenenvError, OSError) as error:
        log.warning("stage=%s its tokens are not counted: %s", manifest.stage, error)
        return None


def _generations(manifests: Sequence[Manifest], artifacts: Artifacts) -> pl.DataFrame:
    """Return texts of pi_env or of a teacher; one with several tasks counts once."""
    tasks = _frame(manifests, "tasks", (*_TASKS, *_WRITTEN), artifacts)
    return tasks.unique([*_TASKS, *_WRITTEN])


def _drawn(
    manifest: Manifest, known: pl.DataFrame, ident: str, artifacts: Artifacts
) -> pl.DataFrame:
    """Return the rows of `known` that an update drew."""
    samples = _frame([manifest], "update_samples", ("row_id",), artifacts)
    return samples.join(known, left_on="row_id", right_on=ident)


def _sum(frame: pl.DataFrame, columns: Sequence[str]) -> int:
    return sum(int(frame[column].sum()) for column in columns)


def _of_stage(inputs: Inputs, stage: str, artifacts: Artifacts) -> list[Manifest]:
    """Return the inputs that are outputs of a stage, each once."""
    found: dict[str, ArtifactRef] = {}
    for field in fields(inputs):
        value = getattr(inputs, field.name)
        for one in cast(Sequence[Any], value) if isinstance(value, list | tuple) else [value]:
            if isinstance(one, ArtifactRef) and one.stage == stage:
                found[one.key] = one
    return [artifacts.load(one) for one in found.values()]


def _frame(
    manifests: Sequence[Manifest], table: str, columns: Sequence[str], artifacts: Artifacts
) -> pl.DataFrame:
    """Return some columns of a table of finished stages."""
    parts = [part for manifest in manifests for part in manifest.of_table(table)]
    frames = [
        read_parquet(table, artifacts.store.local(part.path), columns=columns) for part in parts
    ]
    return pl.concat(frames) if frames else pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64()))
