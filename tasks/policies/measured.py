"""Finds the model that a measurement names: a folder, a run of this root, a version in MLflow."""

from __future__ import annotations

from pathlib import Path

from genenv_core.benchmarks.measuring.request import measurement_name
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.benchmark import OF_RUN
from genenv_core.config.sections.models import chat_template_kwargs
from genenv_core.config.sections.unions.benchmark import MeasuredCheckpoint, MeasuredEndpoint
from genenv_core.config.stages import LAST, update_of
from genenv_core.errors import ModelError
from genenv_core.exchange.given_models import model_folder
from genenv_core.storage.records.artifacts import Artifacts, reference
from genenv_core.storage.records.manifest import CheckpointRef, EndpointRef, Weights, first_maker
from genenv_core.storage.records.runs import RunLog, pinned
from genenv_core.types import Policy
from tasks.stage.stores import artifacts_of
from tasks.tracking.client import open_client, scrubbed, tracking_uri

OF_MLFLOW = "models:/"


def named(config: RunConfig) -> RunConfig:
    """Return a measurement with its run id, and with the epoch that `run:RUN` means now.

    Raises ConfigError for a run or an epoch that does not exist.
    """
    given = config.measured
    if isinstance(given, MeasuredCheckpoint):
        whole = {
            name: pinned(artifacts_of(config.root).store, f"benchmark.{name}", model)
            for name, model in (("model", given.model), ("simulator", given.simulator))
            if model and model.startswith(OF_RUN)
        }
        config = config.model_copy(update={"benchmark": given.model_copy(update=whole)})
    return config.model_copy(update={"run_id": measurement_name(config)})


def model_of(config: RunConfig, field: str, name: str, policy: Policy) -> Weights:
    """Return a model by its name in the configuration; raises ConfigError or ModelError."""
    if name.startswith(OF_RUN):
        return _of_run(artifacts_of(config.root), field, name.removeprefix(OF_RUN), policy)
    variables = chat_template_kwargs(config.models, policy)
    folder = _of_mlflow(config, field, name) if name.startswith(OF_MLFLOW) else Path(name)
    return model_folder(policy, folder.expanduser(), variables, field)


def endpoint_of(config: RunConfig, given: MeasuredEndpoint) -> EndpointRef:
    """Return the endpoint to measure; raises ConfigError where its key is missing."""
    from genenv_core.exchange.chat_client import key_of  # loads aiohttp

    key_of("benchmark", "the stage benchmark", config.execution.benchmark)
    return EndpointRef(given.url, given.model_name, given.request)


def _of_run(artifacts: Artifacts, field: str, name: str, policy: Policy) -> CheckpointRef:
    """Return the checkpoint that was current after an epoch of a run, the last one by default."""
    run, _, epochs = (
        pinned(artifacts.store, field, OF_RUN + name).removeprefix(OF_RUN).partition("@")
    )
    log, epoch = RunLog(artifacts.store, run), int(epochs)
    while epoch:
        manifest = artifacts.find(LAST, log.keys(epoch)[LAST])
        if manifest is not None and manifest.facts["published"][policy]:
            break
        epoch -= 1
    keys = log.keys(epoch)
    stage = update_of(policy) if epoch else first_maker(artifacts.find(LAST, keys[LAST]))
    made = artifacts.find(stage, keys[stage])
    if made is None:
        raise ModelError(
            f"{field} {OF_RUN}{name}: the output of {stage} in epoch {epoch} is missing or "
            f"damaged: `genenv resume {run}` makes it again"
        )
    return CheckpointRef(
        artifact=reference(made),
        name=policy,
        digest=made.checkpoints[policy],
        policy_version=epoch,
    )


def _of_mlflow(config: RunConfig, field: str, name: str) -> Path:
    """Return the files of a registered version, as MLflow's own client fetches them."""
    root = artifacts_of(config.root).store.home
    uri = tracking_uri(config, root)
    client = open_client(config, root)
    from mlflow.artifacts import download_artifacts

    try:
        # By the client, because MLflow's own URIs are global in the process.
        model, _, version = name.removeprefix(OF_MLFLOW).rpartition("/")
        if not model:
            model, _, alias = version.partition("@")
            version = client.get_model_version_by_alias(model, alias).version
        source = client.get_model_version_download_uri(model, str(version))
        return Path(download_artifacts(artifact_uri=source, tracking_uri=uri))
    except Exception as error:  # MLflow's own, and those of the store behind it
        raise ModelError(
            f"{field} {name}: MLflow has no such version here: {scrubbed(error, uri)}; a version "
            "is models:/NAME/NUMBER or models:/NAME@ALIAS"
        ) from error
