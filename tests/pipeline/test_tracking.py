"""MLflow, real, on SQLite under the root.

Invariants: one run a co-evolution with the resolved config as parameters; metrics by epoch; both
models as versions tagged with digest and stage key; `best` and `latest` load weights with the
digest of their tag, and these generate, as the pipeline of `mlflow.transformers.load_model` does;
logging twice changes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genenv_core.canonical import digest
from genenv_core.storage.records.artifacts import file_sha256
from genenv_core.storage.store.local import LocalStore
from tasks.tracking.flavor import BESIDE
from tests.pipeline.builders import manifests as manifests_of
from tests.pipeline.builders import run, sql, tiny


@pytest.fixture(scope="module")
def tracked(api: None, tiny_root: Path):
    config = tiny(tiny_root, "tracking.enabled=true", run_id="tracked")
    run(config)
    return config


@pytest.fixture(scope="module")
def client(tracked):
    from tasks.tracking.track import open_client

    return open_client(tracked, LocalStore(Path(tracked.root)).root)


def the_run(client, config):
    experiment = client.get_experiment_by_name(config.tracking.experiment)
    runs = client.search_runs([experiment.experiment_id])
    return [r for r in runs if r.data.tags["genenv.run_id"] == config.run_id]


def test_one_run_with_the_config_as_parameters(tracked, client):
    (found,) = the_run(client, tracked)
    assert found.data.params["rwr.lambda"] == "4.0"
    assert found.data.params["rollout.n"] == "4"
    assert found.info.status == "FINISHED"


def test_metrics_by_epoch_equal_the_view(tracked, client):
    (found,) = the_run(client, tracked)
    logged = client.get_metric_history(found.info.run_id, "p_hat")
    rows = sql(tracked, "SELECT epoch, p_hat FROM epochs ORDER BY epoch")
    assert [(m.step, m.value) for m in logged] == list(rows.iter_rows())


@pytest.mark.parametrize("alias", ["best", "latest"])
def test_an_alias_loads_weights_with_the_digest_of_its_tag(tracked, client, alias, monkeypatch):
    import mlflow
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from tasks.tracking.names import model_name
    from tasks.tracking.track import tracking_uri

    uri = tracking_uri(tracked, LocalStore(Path(tracked.root)).root)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)  # put back at the end; the next line sets it too
    mlflow.set_tracking_uri(uri)
    for policy in ("agent", "env"):
        name = model_name("genenv", policy)
        version = client.get_model_version_by_alias(name, alias)
        folder = Path(mlflow.artifacts.download_artifacts(f"models:/{name}@{alias}"))
        files = sorted(p for p in folder.iterdir() if p.is_file() and p.name not in BESIDE)
        # A checkpoint's digest is that of its file names and contents.
        assert version.tags["genenv.digest"] == digest([[p.name, file_sha256(p)] for p in files])
        assert len(version.tags["genenv.stage_key"]) == 64
        model = AutoModelForCausalLM.from_pretrained(folder, use_safetensors=True)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        prompt = tokenizer("Receive 3", return_tensors="pt", add_special_tokens=False)
        with torch.inference_mode():
            out = model.generate(**prompt, max_new_tokens=4, do_sample=False)
        assert out.shape[1] > prompt["input_ids"].shape[1]
        loaded = mlflow.transformers.load_model(f"models:/{name}@{alias}")
        assert loaded.task == "text-generation" and loaded.tokenizer("Receive 3") == tokenizer(
            "Receive 3"
        )
        drawn: list[Any] = []
        for one in (model, loaded.model):
            torch.manual_seed(3)
            drawn.append(one.generate(**prompt, max_new_tokens=8, do_sample=True))
        assert torch.equal(*drawn)


def test_every_published_update_is_a_version(tracked, client):
    from tasks.tracking.names import model_name

    for policy, stage in (("agent", "grpo_update"), ("env", "rwr_update")):
        made = [
            manifest.key
            for (_, name), manifest in manifests_of(tracked).items()
            if name == stage and manifest.facts["action"] != "skipped"
        ]
        found = client.search_model_versions(f"name = '{model_name('genenv', policy)}'")
        keys = [v.tags["genenv.stage_key"] for v in found]
        assert set(made) <= set(keys)
        assert len(keys) == len(set(keys))


def test_logging_again_changes_nothing(tracked, client):
    from genenv_core.storage.records.runs import RunLog
    from tasks.tracking.names import model_name
    from tasks.tracking.track import TRACKED

    store = LocalStore(Path(tracked.root))
    log = RunLog(store, str(tracked.run_id))
    versions = f"name = '{model_name('genenv', 'agent')}'"
    before = len(client.search_model_versions(versions))
    for epoch in range(tracked.epochs + 1):  # as after a crash between logging and its note
        log.note_key(epoch, TRACKED, "0" * 64)
    run(tracked)
    (found,) = the_run(client, tracked)
    assert len(client.get_metric_history(found.info.run_id, "p_hat")) == tracked.epochs
    assert len(client.search_model_versions(versions)) == before
