"""Resolves a person's request, in the Prefect UI or API, to the configuration of a run."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from flows.deploy.benchmark_request import BenchmarkRequest
from flows.preparing import Prepared, prepare
from flows.running.environment import ROOT_VARIABLE
from genenv_core.benchmarks.measuring.request import MeasuringOptions, measurement
from genenv_core.config.branching import BranchPoint, branch_name, read_point
from genenv_core.config.comparison import Comparison, read_comparison
from genenv_core.config.load import (
    as_recorded,
    continued,
    preset_values,
    read_override,
    run_name,
    validated,
    with_changes,
    with_overrides,
)
from genenv_core.config.request import ROOT, RunRequest, ShortRequest, overrides
from genenv_core.config.requests_beside import (
    CompareRequest,
    EpochRequest,
    StageRequest,
)
from genenv_core.config.run_options import RunOptions
from genenv_core.config.schema import RunConfig
from genenv_core.config.several import one_or_the_other
from genenv_core.config.stages import LAST
from genenv_core.errors import ConfigError, NotFound
from genenv_core.storage.records.labels import Change, change_of
from genenv_core.storage.records.runs import RunLog, list_runs, no_such_run
from genenv_core.storage.store.opening import open_once
from tasks.upkeep.started_in import go_where_started


@dataclass(frozen=True)
class Work:
    """A run that may start as the form asked for it, and what the form's answer says."""

    run: Prepared
    said: Change


def work_of(request: RunRequest | ShortRequest) -> Work:
    """Return what a request asks for; raises ConfigError with the field, and as `prepare`."""
    config = configuration(request)
    note, pin = getattr(request, "note", None), getattr(request, "pin", False)
    said = change_of(request.tags, note=note, pinned=pin or None)
    options = RunOptions.read(config, request.until, request.force, point_of(request), "request.")
    return Work(prepare(config, options), said)


def configuration(request: RunRequest | ShortRequest) -> RunConfig:
    """Return the resolved configuration, with a run id; raises ConfigError with the path."""
    changes = overrides(request)
    one_or_the_other(changes, "request")
    if isinstance(request, ShortRequest):
        values = with_overrides(
            preset_values(request.preset.value), request.changes, "request.changes"
        )
        fields = {"root": _root(values.get("root"))}
    else:
        root = _root(request.root)
        if request.resume is not None:
            return _resumed(request, root, changes)
        if (point := point_of(request)) is not None:
            config = _of_run(point.run_id, root, changes, request.run_id)
            return config.model_copy(update={"run_id": branch_name(config, point)})
        values = preset_values(request.preset.value)
        fields = {"root": root, "run_id": request.run_id}
    config = _absolute(validated(with_changes(values, changes), "request", fields))
    return config.model_copy(update={"run_id": run_name(config, request.preset.value)})


def point_of(request: RunRequest | ShortRequest) -> BranchPoint | None:
    """Return where a request branches off, None for nowhere; raises ConfigError."""
    given = request.from_ if isinstance(request, RunRequest) else None
    return read_point(given, "request.from") if given else None


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
    """Return the configuration of a measurement; raises ConfigError."""
    asked = MeasuringOptions(
        request.model,
        request.model_name,
        request.key_env,
        request.data,
        request.mode,
        request.samples,
        request.items,
    )
    fields = {"root": _root(request.root), "run_id": request.run_id, "seed": request.seed}
    made = measurement(
        request.benchmark, asked, overrides=request.changes, fields=fields, option="request.changes"
    )
    return _absolute(made)


def recorded(request: EpochRequest | StageRequest) -> RunConfig:
    """Return the configuration that a run of the root was started with."""
    return _known(request.run_id, _root(request.root), {})


def next_epoch(run: RunLog) -> int:
    """Return the first epoch of a run that is not finished; after the last one, one more."""
    number = 1
    while LAST in run.keys(number):
        number += 1
    return number


def _resumed(request: RunRequest, root: str, changes: dict[str, Any]) -> RunConfig:
    epochs = changes.pop("epochs", None)
    for name, given in (("run_id", request.run_id), ("from", request.from_)):
        if given is not None:
            changes[name] = given
    where = f"request, resume {request.resume}"
    fields = {"epochs": epochs, "root": root, "run_id": request.resume}
    recorded = _recorded(str(request.resume), root)
    return _absolute(continued(recorded, str(request.resume), changes, where, fields))


def _of_run(run: str, root: str, changes: dict[str, Any], run_id: str | None) -> RunConfig:
    """Return the configuration of a run of the root, under another name and with changes."""
    values = with_changes({**_recorded(run, root), "run_id": run_id}, changes)
    return _absolute(validated(values, f"run {run}", {"root": root}))


def _known(run: str, root: str, fields: dict[str, Any]) -> RunConfig:
    return as_recorded(_recorded(run, root), run, {**fields, "root": root, "run_id": run})


def _recorded(run: str, root: str) -> dict[str, Any]:
    store = open_once(root)
    try:
        info = RunLog(store, run).info()
    except NotFound:
        raise ConfigError(no_such_run(run, list_runs(store), f"in {root}")) from None
    go_where_started(info)
    return info.config


def _root(given: object) -> str:
    """Return the root of a request; a worker's own folder is no place that a path starts from."""
    root = given or os.environ.get(ROOT_VARIABLE)
    if not root:
        raise ConfigError(f"request.root is empty and {ROOT_VARIABLE} is not set: give one of them")
    if not re.match(ROOT, str(root)):
        raise ConfigError(f"request: root {root!r} has to be an absolute directory or an s3:// URI")
    return str(root)


def _absolute(config: RunConfig) -> RunConfig:
    """Return a configuration; raises ConfigError for a root to read from as for `root`."""
    for uri in config.roots.read:
        if not re.match(ROOT, uri):
            raise ConfigError(
                f"request: roots.read {uri!r} has to be an absolute directory or an s3:// URI"
            )
    return config
