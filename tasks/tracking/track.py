"""Logs to MLflow: one run a co-evolution, metrics by epoch, both models as versions with aliases.

Logging belongs to a run and not to a stage's output, so it also happens for a reused `publish`.
Every step first looks up what exists, so a repeated step changes nothing.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genenv_core.addresses import page_of
from genenv_core.canonical import leaves, sha256
from genenv_core.config.load import dump
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import LAST, update_of
from genenv_core.errors import Retired
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.foreign import find_foreign
from genenv_core.storage.records.manifest import ArtifactRef, Manifest, first_maker
from genenv_core.storage.records.runs import TRACKED, RunLog
from tasks.stage.progress import check
from tasks.stage.stores import leases_of
from tasks.tracking.client import (
    is_remote,
    open_client,
    scrubbed,
    shown,
    tracking_uri,
    unreachable,
)
from tasks.tracking.database import database_of
from tasks.tracking.flavor import laid_out
from tasks.tracking.names import model_name, parameter_names
from tasks.tracking.news import begin, listed, tell

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as MlflowRun

log = logging.getLogger("genenv.tracking")

_missed: dict[tuple[str, str], dict[int, str]] = {}
"""(root, run id) -> epochs of this process's commands that MLflow lacks."""

RUN_TAG = "genenv.run_id"
BEGUN_TAG = "genenv.started_at"
"""Tags of an MLflow run that name its co-evolution."""

ALIAS_BEST = "best"
"""The alias that genenv sets; `latest` is MLflow's own and always names the newest version."""


def track(config: RunConfig, epoch: int, ref: ArtifactRef, artifacts: Artifacts) -> None:
    """Log an epoch of a run, and earlier epochs that MLflow lacks.

    Logs a warning where the server does not answer. The next epoch that reaches it logs what is
    missing, or the same command does later.
    """
    if not config.tracking.enabled or config.run_id is None:
        return
    run = RunLog(artifacts.store, config.run_id)
    if epoch == 0:
        begin((config.root, run.run_id))
    behind = _behind(config, run, epoch, artifacts)
    if run.keys(epoch).get(TRACKED) != _noted(config, ref.key, artifacts):
        behind[epoch] = ref.key
    if not behind:
        return
    uri = tracking_uri(config, artifacts.store.home)
    missed = sorted(behind)
    away = unreachable(uri)
    if away is None:
        away = _log_behind(config, run, uri, behind, artifacts)
    if away is not None:
        log.warning(
            "run=%s MLflow at %s: %s; the run goes on. Not logged yet: %s. The next epoch that "
            "reaches it logs them, or `genenv resume %s` later",
            config.run_id, shown(uri), away, listed(behind), config.run_id,
        )  # fmt: skip
    tell((config.root, config.run_id), epoch, shown(uri), away, missed)


def not_logged(config: RunConfig) -> list[int]:
    """Return the epochs of a run of this process that are not in MLflow."""
    return sorted(_missed.get((config.root, str(config.run_id)), {}))


def _noted(config: RunConfig, key: str, artifacts: Artifacts) -> str:
    """Return the note of a run that MLflow has the epoch of a publish key: the key and the server.

    A run that changes the server logs all its epochs there. For the database of the root the note
    is the key alone, so that a root may move.
    """
    uri = tracking_uri(config, artifacts.store.home)
    if uri == database_of(artifacts.store.home):
        return key
    return sha256(f"{key} {shown(uri).rstrip('/')}".encode())


def _behind(config: RunConfig, run: RunLog, epoch: int, artifacts: Artifacts) -> dict[int, str]:
    """Return epoch -> publish key of earlier epochs that MLflow lacks.

    The process keeps the mapping from call to call. A whole run begins with epoch 0 and passes
    every epoch; a single epoch looks back once.
    """
    known = _missed.get((config.root, run.run_id))
    if known is None or epoch == 0:
        known = _missed[config.root, run.run_id] = {}
        for past in range(epoch):
            keys = run.keys(past)
            if LAST in keys and keys.get(TRACKED) != _noted(config, keys[LAST], artifacts):
                known[past] = keys[LAST]
    return known


def _log_behind(
    config: RunConfig, run: RunLog, uri: str, behind: dict[int, str], artifacts: Artifacts
) -> str | None:
    """Log epochs in order and take them out of `behind`; return the error of MLflow, if any."""
    import requests
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError  # of MLflow's, where it makes a database

    def tracked() -> bool | None:
        done = [
            epoch
            for epoch, key in behind.items()
            if run.keys(epoch).get(TRACKED) == _noted(config, key, artifacts)
        ]
        for epoch in done:
            del behind[epoch]
        return True if not behind else None

    # MLflow has no create-if-absent, so two processes at once would make things twice.
    with leases_of(config.root).hold(TRACKED, "mlflow", tracked, check=check) as done:
        if done:
            return None
        try:
            client = open_client(config, artifacts.store.home)
            for epoch in sorted(behind):
                _log_epoch(client, config, run, epoch, behind[epoch], artifacts)
                del behind[epoch]
        except (MlflowException, requests.RequestException, SQLAlchemyError, OSError) as error:
            return scrubbed(error, uri)
    return None


def _log_epoch(
    client: MlflowClient,
    config: RunConfig,
    run: RunLog,
    epoch: int,
    key: str,
    artifacts: Artifacts,
) -> None:
    from mlflow.entities import Metric

    manifest = artifacts.find(LAST, key)
    if manifest is None:
        log.warning("run=%s epoch=%d not logged: its summary is gone", run.run_id, epoch)
        return
    run_uuid = _mlflow_run(client, config, run)
    # MLflow keeps one point per (key, step, timestamp, value): a fixed timestamp makes a repeated
    # call a no-op instead of a second point.
    metrics = sorted(_metrics(manifest, artifacts).items())
    client.log_batch(run_uuid, metrics=[Metric(key, value, epoch, epoch) for key, value in metrics])
    checkpoints = artifacts.frame(manifest, "checkpoints")
    for row in checkpoints.filter("published").iter_rows(named=True):
        if epoch == 0 or manifest.facts["published"][row["policy"]]:
            _register(client, config, run_uuid, row, run, artifacts)
    if epoch == config.epochs:
        client.set_terminated(run_uuid)
    run.note_key(epoch, TRACKED, _noted(config, key, artifacts))


def _mlflow_run(client: MlflowClient, config: RunConfig, run: RunLog) -> str:
    """Return the MLflow run of this co-evolution; make it on first use."""
    name = config.tracking.experiment
    experiment = client.get_experiment_by_name(name)
    identifier = experiment.experiment_id if experiment else client.create_experiment(name)
    begun = run.info().started_at.isoformat()
    made = _found(client, identifier, run.run_id, begun) or client.create_run(
        identifier,
        run_name=config.run_id,
        tags={RUN_TAG: run.run_id, BEGUN_TAG: begun, "genenv.arm": config.arm.value},
    )
    run_uuid = made.info.run_id
    if made.info.status != "RUNNING":
        client.update_run(run_uuid, status="RUNNING")
    settings = {name: str(value) for name, value in leaves(dump(config), lists=False)}
    for key, name in sorted(parameter_names(settings).items()):
        if name not in made.data.params:  # a kill may have come between two of them
            client.log_param(run_uuid, name, settings[key])
    return run_uuid


def _found(client: MlflowClient, experiment: str, run_id: str, begun: str) -> MlflowRun | None:
    """Return the MLflow run of a co-evolution, None before it exists.

    A run's name alone does not identify it: another root may have one of the same name. A copy of
    a run has the same start time, and continues its MLflow run.
    """
    found = client.search_runs([experiment], f"tags.`{RUN_TAG}` = '{run_id}'")
    for one in found:
        if one.data.tags.get(BEGUN_TAG) == begun:
            return one
    for one in found:
        if BEGUN_TAG not in one.data.tags:  # an earlier genenv made it
            client.set_tag(one.info.run_id, BEGUN_TAG, begun)
            return one
    return None


def _metrics(manifest: Manifest, artifacts: Artifacts) -> dict[str, float]:
    """Return an epoch's numbers under the names of the view `epochs` and of both updates."""
    metrics = {
        name: float(value)
        for name, value in manifest.facts["summary"].items()
        if isinstance(value, int | float) and name != "epoch"
    }
    for row in artifacts.frame(manifest, "checkpoints").iter_rows(named=True):
        for name, value in json.loads(row["metrics"]).items():
            metrics[f"{row['policy']}.{name}"] = float(value)
    return metrics


def _register(
    client: MlflowClient,
    config: RunConfig,
    run_uuid: str,
    row: dict[str, Any],
    run: RunLog,
    artifacts: Artifacts,
) -> None:
    """Make the model version of a published checkpoint, unless there is one, and set the alias."""
    from mlflow.exceptions import MlflowException

    name = model_name(config.tracking.experiment, row["policy"])
    try:
        client.get_registered_model(name)
    except MlflowException:
        client.create_registered_model(name)
    keys = run.keys(row["epoch"])
    first = first_maker(artifacts.find(LAST, keys[LAST])) if row["epoch"] == 0 else None
    key = keys[stage := first or update_of(row["policy"])]
    tags = {
        RUN_TAG: str(config.run_id),
        "genenv.epoch": str(row["epoch"]),
        "genenv.digest": row["digest"],
        "genenv.stage_key": key,
    }
    if page := page_of(str(config.run_id), "checkpoints", row["policy"], row["epoch"]):
        tags["genenv.view"] = page
    # By this MLflow run: another root may have a run of this name.
    found = client.search_model_versions(f"name = '{name}' and run_id = '{run_uuid}'")
    same = [v for v in found if v.tags.get("genenv.stage_key") == key]
    if same:
        version = same[0]
    else:
        manifest = artifacts.find(stage, key)
        assert manifest is not None
        note = find_foreign(artifacts.store, manifest)
        if note and None in artifacts.store.stats([part.path for part in note.parts]):
            log.info(
                "run=%s epoch=%d not registered: its weights lie in %s",
                config.run_id, row["epoch"], note.root,
            )  # fmt: skip
            return
        try:
            source = _source(client, config, run_uuid, row, manifest, artifacts)
        except Retired as error:  # superseded before this run was tracked
            log.warning("run=%s epoch=%d not registered: %s", config.run_id, row["epoch"], error)
            return
        version = client.create_model_version(name, source=source, run_id=run_uuid, tags=tags)
    # The agent's held-out success decides "best". pi_env has no such number, so its best is the one
    # beside the best agent.
    if row["is_best"] or (row["policy"] == "env" and _agent_is_best(row["epoch"], run, artifacts)):
        client.set_registered_model_alias(name, ALIAS_BEST, version.version)


def _source(
    client: MlflowClient,
    config: RunConfig,
    run_uuid: str,
    row: dict[str, Any],
    manifest: Manifest,
    artifacts: Artifacts,
) -> str:
    """Return the place of a model version's files: an upload, a reference, or their folder."""
    from tasks.tracking.references import folder_reference, object_reference

    remote = is_remote(tracking_uri(config, artifacts.store.home))
    if remote and config.tracking.upload:
        folder = laid_out(artifacts.checkpoint(manifest, row["policy"]), artifacts.store.home)
        place = f"checkpoints/{row['policy']}/{row['epoch']:06d}"
        _upload(client, run_uuid, folder, place)
        return f"runs:/{run_uuid}/{place}"
    if artifacts.store.uri.startswith("s3://"):  # other machines see it under its name
        return object_reference(artifacts.store, manifest, row["policy"])
    folder = laid_out(artifacts.checkpoint(manifest, row["policy"]), artifacts.store.home)
    return folder_reference(folder) if remote else str(folder)


def _upload(client: MlflowClient, run_uuid: str, folder: Path, place: str) -> None:
    """Upload a checkpoint; a repeated upload sends the same files to the same place."""
    import requests
    from mlflow.exceptions import MlflowException

    try:
        client.log_artifacts(run_uuid, str(folder), place)
    except (MlflowException, requests.RequestException):
        raise
    except Exception as error:  # whatever the client of the server's artifact store raises
        message = f"the upload of {place} failed: {type(error).__name__}: {error}"
        raise MlflowException(message) from error


def _agent_is_best(epoch: int, run: RunLog, artifacts: Artifacts) -> bool:
    manifest = artifacts.find(LAST, run.keys(epoch).get(LAST, ""))
    return bool(manifest and manifest.facts["is_best"])
