"""Small helpers for tests that run whole flows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from genenv_core.config.load import resolve, run_name
from genenv_core.config.schema import RunConfig
from genenv_core.storage import paths
from genenv_core.storage.records.manifest import Manifest
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.sql.catalog import query, setup, tables_named
from genenv_core.storage.sql.duck import build, build_named, start
from genenv_core.storage.sql.sources import sources
from genenv_core.storage.store.opening import open_store

MEASURED = {"benchmark_items", "benchmark_metrics", "certified_sets", "set_flaws"}
"""Tables that only a run which measures a model writes."""


def tiny(root: Path | str, *overrides: str, epochs: int | None = None, run_id: str) -> RunConfig:
    """Return the preset tiny in a root, without MLflow unless an override turns it on."""
    settings = ["tracking.enabled=false", *overrides]
    fields = {"root": str(root), "epochs": epochs, "run_id": run_id}
    config = resolve("tiny", overrides=settings, fields=fields)
    return config.model_copy(update={"run_id": run_name(config, "tiny")})


def run(config: RunConfig) -> None:
    """Run a co-evolution in this process against the session's API."""
    from flows.coevolution import coevolution

    coevolution(config)


def sql(config: RunConfig, text: str) -> pl.DataFrame:
    """Return a query's rows over one run; only the views that it names are made, as `frame` does.

    To make all of them takes a quarter of a second, and whole runs are asked hundreds of times.
    """
    store = open_store(config.root, writable=False)
    built = setup(sources(store, [str(config.run_id)], tables=tables_named(text)))
    waiting = dict(built.views)
    with start("1GB") as connection:
        build(connection, replace(built, views={}))
        build_named(connection, waiting, text)
        return query(connection, text)


def manifests(config: RunConfig) -> dict[tuple[int, str], Manifest]:
    """Return every manifest of a run by epoch and stage."""
    store = open_store(config.root, writable=False)
    log = RunLog(store, str(config.run_id))
    found: dict[tuple[int, str], Manifest] = {}
    for epoch in range(config.epochs + 1):
        for stage, key in log.keys(epoch).items():
            if stage == "tracked":
                continue
            found[(epoch, stage)] = Manifest.from_bytes(store.read(paths.manifest(stage, key)))
    return found


def states(config: RunConfig) -> list[tuple[int, str, str]]:
    """Return (epoch, stage, state) of every attempt of a run, oldest first."""
    log = RunLog(open_store(config.root, writable=False), str(config.run_id))
    return [(a.epoch, a.stage, a.state) for a in log.attempts()]


def computed(events: Sequence[tuple[int, str, str]]) -> set[tuple[int, str]]:
    """Return (epoch, stage) of each event of a computed stage."""
    return {(epoch, stage) for epoch, stage, state in events if state == "computed"}
