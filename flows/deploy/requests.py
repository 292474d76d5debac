"""Resolves a person's request, in the Prefect UI or API, to the configuration of a run."""

from __future__ import annotations

import os
from typing import Any

from flows.running.environment import ROOT_VARIABLE
from genenv_core.config.comparison import Comparison, read_comparison
from genenv_core.config.load import changed, preset_values, read_override, run_name, validated
from genenv_core.config.request import (
    BenchmarkRequest,
    CompareRequest,
    EpochRequest,
    RunRequest,
    StageRequest,
    overrides,
)
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import LAST
from genenv_core.errors import ConfigError, NotFound
from genenv_core.measuring.request import measurement
from genenv_core.storage.records.runs import RunLog, list_runs, no_such_run
from genenv_core.storage.store.opening import open_store
from tasks.policies.measured import named


def configuration(request: RunRequest) -> RunConfig:
    """Return the resolved configuration, with a run id; raises ConfigError with the path."""
    root = _root(request.root)
    changes = overrides(request)
    if request.resume is not None:
        return _resumed(request, root, changes)
    values = changed(preset_values(request.preset.value), changes)
    config = validated(values, "request", {"root": root, "run_id": request.run_id})
    return config.model_copy(update={"run_id": run_name(config, request.preset.value)})


def comparison_of(request: CompareRequest) -> tuple[Comparison, str]:
    """Return what a request compares, and the root; raises ConfigError."""
    seeds = range(request.first_seed, request.first_seed + request.seeds)
    fields = {
        "arms": request.arms,
        "seeds": list(seeds),
        "budget": request.budget,
        "measure": request.measure,
        "set": dict(read_override(text, "request.changes") for text in request.changes) or None,
    }
    return read_comparison(request.preset.value, fields), _root(request.root)


def measurement_of(request: BenchmarkRequest) -> RunConfig:
    """Return the configuration of a measurement, with a run id; raises ConfigError."""
    fields: dict[str, Any] = {
        "root": _root(request.root),
        "run_id": request.run_id,
        "seed": request.seed,
    }
    if request.key_env is not None:
        fields["execution"] = {"benchmark": {"key_env": request.key_env}}
    remote = request.model.startswith(("http://", "https://"))
    model = {
        "url": request.model if remote else None,
        "model": None if remote else request.model,
        "model_name": request.model_name,
        "items": request.items,
    }
    config = measurement(
        request.benchmark.value,
        model,
        options={"data": request.data, "mode": request.mode},
        samples=request.samples,
        overrides=request.changes,
        fields=fields,
    )
    return named(config)


def recorded(request: EpochRequest | StageRequest) -> RunConfig:
    """Return the configuration that a run of the root was started with."""
    return _known(request.run_id, _root(request.root), {})


def next_epoch(config: RunConfig) -> int:
    """Return the first epoch of a run that is not finished; after the last one, one more."""
    log = RunLog(open_store(config.root), str(config.run_id))
    number = 1
    while LAST in log.keys(number):
        number += 1
    return number


def _resumed(request: RunRequest, root: str, changes: dict[str, Any]) -> RunConfig:
    epochs = changes.pop("epochs", None)
    refused = sorted(changes) + (["run_id"] if request.run_id is not None else [])
    if refused:
        raise ConfigError(
            f"request: {', '.join(refused)} beside resume: a run is continued with the "
            "configuration it was started with; leave one of the two out"
        )
    return _known(str(request.resume), root, {"epochs": epochs})


def _known(run: str, root: str, fields: dict[str, Any]) -> RunConfig:
    store = open_store(root)
    try:
        known = RunLog(store, run).info().config
    except NotFound:
        raise ConfigError(no_such_run(run, list_runs(store), f"in {root}")) from None
    return validated(known, f"run {run}", {**fields, "root": root, "run_id": run})


def _root(given: str | None) -> str:
    root = given or os.environ.get(ROOT_VARIABLE)
    if not root:
        raise ConfigError(f"request.root is empty and {ROOT_VARIABLE} is not set: give one of them")
    return root
