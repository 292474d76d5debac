"""MLflow: one run a co-evolution, metrics by epoch, both models as versions with aliases.

Logging belongs to a run and not to a stage's output, so it also happens when `publish` is reused,
and every step asks first what is there: doing it twice changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genenv_core.config.load import dump
from genenv_core.config.schema import RunConfig
from genenv_core.errors import Retired
from genenv_core.storage.artifacts import Artifacts
from genenv_core.storage.local import LocalStore
from genenv_core.storage.manifest import ArtifactRef, Manifest
from genenv_core.storage.runs import TRACKED, RunLog
from tasks.progress import check
from tasks.stage import leases_of

if TYPE_CHECKING:
    from mlflow import MlflowClient

log = logging.getLogger("genenv.tracking")

ALIAS_BEST = "best"
"""Set here; the alias `latest` is MLflow's own and always names the newest version."""


def tracking_uri(config: RunConfig, root: Path) -> str:
    """Return the configured tracking URI, or that of the SQLite file under the root."""
    return config.tracking.uri or f"sqlite:///{root / 'mlflow' / 'mlflow.db'}"


def model_name(config: RunConfig, policy: str) -> str:
    """Return the name of a policy's registered model."""
    return f"{config.tracking.experiment}-{policy}"


def track(config: RunConfig, epoch: int, ref: ArtifactRef, artifacts: Artifacts) -> None:
    """Log an epoch of a run, unless this run has logged the same result already."""
    if not config.tracking.enabled or config.run_id is None:
        return
    run = RunLog(artifacts.store, config.run_id)

    def tracked() -> bool | None:
        return run.keys(epoch).get(TRACKED) == ref.key or None

    if tracked():
        return
    # MLflow has no create-if-absent, so two processes at once would make things twice.
    with leases_of(config.root).hold(TRACKED, "mlflow", tracked, check=check) as done:
        if done:
            return
        client = open_client(config, artifacts.store.home)
        run_uuid = _mlflow_run(client, config)
        manifest = artifacts.load(ref)
        _log_metrics(client, run_uuid, epoch, _metrics(manifest, artifacts))
        checkpoints = artifacts.frame(manifest, "checkpoints")
        for row in checkpoints.filter("published").iter_rows(named=True):
            if epoch == 0 or manifest.facts["published"][row["policy"]]:
                _register(client, config, run_uuid, row, run, artifacts)
        if epoch == config.epochs:
            client.set_terminated(run_uuid)
        run.note_key(epoch, TRACKED, ref.key)


def open_client(config: RunConfig, root: Path) -> MlflowClient:
    """Return a client of the configured tracking store; creates the SQLite file when missing."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("DO_NOT_TRACK", "true")
    from mlflow import MlflowClient

    # Its migrations announce themselves line by line.
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if config.tracking.uri is None:
        create_database(root)
    return MlflowClient(tracking_uri=tracking_uri(config, root))


def create_database(root: Path) -> None:
    """Make MLflow's SQLite file, whole or not at all: it cannot go on with one that was cut off."""
    from mlflow import MlflowClient

    path = root / "mlflow" / "mlflow.db"
    if path.exists():
        return
    path.parent.mkdir(exist_ok=True)
    scratch = LocalStore(root).scratch()
    made = scratch / path.name
    MlflowClient(tracking_uri=f"sqlite:///{made}").search_experiments()
    with contextlib.suppress(FileExistsError):  # another process was quicker, and may use it by now
        os.link(made, path)
    made.unlink()
    scratch.rmdir()


def _mlflow_run(client: MlflowClient, config: RunConfig) -> str:
    """Return the MLflow run of this co-evolution, made on first use."""
    name = config.tracking.experiment
    experiment = client.get_experiment_by_name(name)
    identifier = experiment.experiment_id if experiment else client.create_experiment(name)
    found = client.search_runs([identifier], f"tags.`genenv.run_id` = '{config.run_id}'")
    run = (
        found[0]
        if found
        else client.create_run(
            identifier,
            run_name=config.run_id,
            tags={"genenv.run_id": str(config.run_id), "genenv.arm": config.arm.value},
        )
    )
    run_uuid = run.info.run_id
    if run.info.status != "RUNNING":
        client.update_run(run_uuid, status="RUNNING")
    for key, value in sorted(_flat(dump(config)).items()):
        if key not in run.data.params:  # a kill may have come between two of them
            client.log_param(run_uuid, key, value)
    return run_uuid


def _metrics(manifest: Manifest, artifacts: Artifacts) -> dict[str, float]:
    """Return an epoch's numbers under the names of the view `epochs` and of both updates."""
    metrics = {
        name: float(value)
        for name, value in manifest.facts["summary"].items()
        if isinstance(value, int | float) and name != "epoch"
    }
    for row in artifacts.frame(manifest, "checkpoints").iter_rows(named=True):
        for name, value in _flat_json(row["metrics"]).items():
            metrics[f"{row['policy']}.{name}"] = value
    return metrics


def _log_metrics(
    client: MlflowClient, run_uuid: str, epoch: int, metrics: dict[str, float]
) -> None:
    from mlflow.entities import Metric

    # MLflow keeps one point per (key, step, timestamp, value): a fixed timestamp makes a repeated
    # call a no-op instead of a second point.
    points = [Metric(key, value, epoch, epoch) for key, value in sorted(metrics.items())]
    client.log_batch(run_uuid, metrics=points)


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

    name = model_name(config, row["policy"])
    try:
        client.get_registered_model(name)
    except MlflowException:
        client.create_registered_model(name)
    stage = (
        "bootstrap"
        if row["epoch"] == 0
        else {"agent": "grpo_update", "env": "rwr_update"}[row["policy"]]
    )
    key = run.keys(row["epoch"])[stage]
    tags = {
        "genenv.run_id": str(config.run_id),
        "genenv.epoch": str(row["epoch"]),
        "genenv.digest": row["digest"],
        "genenv.stage_key": key,
    }
    found = client.search_model_versions(
        f"name = '{name}' and tags.`genenv.run_id` = '{config.run_id}'"
    )
    same = [v for v in found if v.tags.get("genenv.stage_key") == key]
    if same:
        version = same[0]
    else:
        manifest = artifacts.find(stage, key)
        assert manifest is not None
        try:
            folder = artifacts.checkpoint(manifest, row["policy"])
        except Retired as error:  # superseded before this run was tracked
            log.warning("run=%s epoch=%d not registered: %s", config.run_id, row["epoch"], error)
            return
        version = client.create_model_version(name, source=str(folder), run_id=run_uuid, tags=tags)
    # "best" is by held-out success of the agent; pi_env has no such number, so its best is the one
    # that was current beside the best agent.
    if row["is_best"] or (row["policy"] == "env" and _agent_is_best(row["epoch"], run, artifacts)):
        client.set_registered_model_alias(name, ALIAS_BEST, version.version)


def _agent_is_best(epoch: int, run: RunLog, artifacts: Artifacts) -> bool:
    manifest = artifacts.find("publish", run.keys(epoch).get("publish", ""))
    return bool(manifest and manifest.facts["is_best"])


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, dict) and value:
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = str(value)
    return flat


def _flat_json(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in json.loads(text).items()}
