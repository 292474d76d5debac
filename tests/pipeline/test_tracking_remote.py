"""MLflow on a server elsewhere that comes and goes.

Invariants: while the server is away the run continues, warns and notes what is missing; the next
epoch that reaches it logs that first, and a later command the rest; every metric and version is
there once, also when a request took effect and its answer was lost; no credential is logged;
versions refer to a folder or to a bucket by URI and digest, or to an equal upload; a checkpoint in
a bucket is loaded by its alias on a machine that has nothing of the root.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from genenv_core.canonical import digest
from genenv_core.config.schema import RunConfig
from genenv_core.storage.records.artifacts import file_sha256
from genenv_core.storage.records.runs import TRACKED, RunLog
from genenv_core.storage.store.local import LocalStore
from tasks.tracking import client as mlflow_client
from tasks.tracking import track as tracking
from tasks.tracking.flavor import BESIDE
from tests.pipeline.builders import manifests, run, tiny
from tests.unit.storage.s3.s3_double import moto, settled
from tests.waiting import until

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"

LOADER = """
import sys
from pathlib import Path
import mlflow, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from genenv_core.storage.records.artifacts import file_sha256
from genenv_core.canonical import digest
from tasks.tracking.flavor import BESIDE

client = mlflow.MlflowClient()
for name in sys.argv[1:]:
    for alias in ("best", "latest"):
        version = client.get_model_version_by_alias(name, alias)
        assert version.source.startswith("genenv-s3://pools/"), version.source
        folder = Path(mlflow.artifacts.download_artifacts(f"models:/{name}@{alias}"))
        files = sorted(p for p in folder.iterdir() if p.is_file() and p.name not in BESIDE)
        found = digest([[path.name, file_sha256(path)] for path in files])
        assert found == version.tags["genenv.digest"], (name, alias)
        model = AutoModelForCausalLM.from_pretrained(folder, use_safetensors=True)
        prompt = AutoTokenizer.from_pretrained(folder)("Receive 3", return_tensors="pt")
        with torch.inference_mode():
            out = model.generate(prompt["input_ids"], max_new_tokens=4, do_sample=False)
        loaded = mlflow.transformers.load_model(f"models:/{name}@{alias}")
        torch.manual_seed(3)
        mine = model.generate(**prompt, max_new_tokens=8, do_sample=True)
        torch.manual_seed(3)
        assert torch.equal(mine, loaded.model.generate(**prompt, max_new_tokens=8, do_sample=True))
        print(name, alias, found, out.shape[1] > prompt["input_ids"].shape[1])
"""
"""What another machine does with a model version."""


class Server:
    """Runs a real `mlflow server` on a free port; a test can stop and restart it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.uri = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {
            **os.environ,
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
        environment.pop("MLFLOW_TRACKING_URI", None)
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "mlflow", "server", "--workers", "1",
                "--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db",
                "--artifacts-destination", str(self.folder / "artifacts"),
                "--host", "127.0.0.1", "--port", str(self.port),
            ],
            env=environment, cwd=self.folder, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        process = self.process

        def answers() -> bool:
            assert process.poll() is None
            return not mlflow_client.unreachable(self.uri)

        until(answers)

    def stop(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process = None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("server"))
    yield made
    made.stop()


def logged(server: Server, config: RunConfig) -> tuple[Any, dict[str, list[tuple[int, float]]]]:
    """Return the only MLflow run of a config, and all points of its metrics."""
    from mlflow import MlflowClient

    client = MlflowClient(server.uri, server.uri)
    experiment = client.get_experiment_by_name(config.tracking.experiment)
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    points = {
        name: [(m.step, m.value) for m in client.get_metric_history(found.info.run_id, name)]
        for name in found.data.metrics
    }
    return found, points


def versions(server: Server, config: RunConfig) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(server.uri, server.uri)
    experiment = config.tracking.experiment
    names = [tracking.model_name(experiment, policy) for policy in ("agent", "env")]
    return [v for name in names for v in client.search_model_versions(f"name = '{name}'")]


@pytest.mark.slow
def test_a_server_that_goes_away_and_comes_back(
    api: None, tiny_root: Path, server: Server, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):  # fmt: skip
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "swordfish")
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ann")
    settings = ("tracking.enabled=true", "tracking.experiment=away")
    short = tiny(tiny_root, *settings, epochs=1, run_id="away")
    log = RunLog(LocalStore(tiny_root), "away")
    with caplog.at_level(logging.WARNING, "genenv"):
        run(short)  # there is no server yet
    assert "Not logged yet: epochs 0, 1" in caplog.text and server.uri in caplog.text
    assert TRACKED not in log.keys(1)

    server.start()
    original, calls = tracking._log_epoch, []

    def cut(*given: Any) -> None:
        calls.append(given[3])
        original(*given)
        if given[3] == 1 and calls.count(1) == 1:
            server.stop()  # between two epochs

    monkeypatch.setattr(tracking, "_log_epoch", cut)
    longer = tiny(tiny_root, *settings, epochs=3, run_id="away")
    caplog.clear()
    run(longer)
    assert calls[:2] == [0, 1] and "Not logged yet: epochs 2, 3" in caplog.text
    assert [TRACKED in log.keys(epoch) for epoch in range(4)] == [True, True, False, False]

    server.start()
    run(longer)
    found, points = logged(server, longer)
    assert found.info.status == "FINISHED"
    assert found.data.params["rollout.n"] == "4"
    assert [step for step, _ in points["p_hat"]] == [1, 2, 3]
    assert all(len(steps) == len({s for s, _ in steps}) for steps in points.values())
    made = versions(server, longer)
    keys = [version.tags["genenv.stage_key"] for version in made]
    updates = [
        m.key
        for (_, stage), m in manifests(longer).items()
        if stage in ("grpo_update", "rwr_update") and m.facts["action"] != "skipped"
    ]
    assert len(keys) == len({(v.name, v.tags["genenv.stage_key"]) for v in made})
    assert set(updates) <= set(keys)

    for epoch in range(4):  # as after a crash between logging and its note
        log.note_key(epoch, TRACKED, "0" * 64)
    run(longer)
    assert logged(server, longer)[1] == points
    assert [v.tags["genenv.stage_key"] for v in versions(server, longer)] == keys
    assert "swordfish" not in caplog.text

    # By reference: the folder is where the URI says, and has the digest of the tag.
    for version in made:
        assert version.source.startswith("genenv-file:///")
        folder = Path(mlflow_client.repository(version.source).download_artifacts(""))
        files = sorted(p for p in folder.iterdir() if p.is_file() and p.name not in BESIDE)
        assert version.tags["genenv.digest"] == digest([[p.name, file_sha256(p)] for p in files])


@pytest.mark.slow
def test_checkpoints_are_uploaded_where_it_is_asked_for(
    api: None, tiny_root: Path, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
):
    if server.process is None:
        server.start()
    config = tiny(
        tiny_root,
        "tracking.enabled=true",
        f"tracking.uri={server.uri}",
        "tracking.experiment=uploaded",
        "tracking.upload=true",
        epochs=1,
        run_id="uploaded",
    )
    run(config)
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)  # set_tracking_uri sets it as well
    mlflow.set_tracking_uri(server.uri)
    for version in versions(server, config):
        folder = Path(
            mlflow.artifacts.download_artifacts(
                f"models:/{version.name}/{version.version}",
                dst_path=str(tmp_path / f"{version.name}-{version.version}"),
            )
        )
        files = sorted(p for p in folder.iterdir() if p.is_file() and p.name not in BESIDE)
        assert version.tags["genenv.digest"] == digest([[p.name, file_sha256(p)] for p in files])


def installed(folder: Path) -> Path:
    """Return a folder for PYTHONPATH that registers the project's entry points."""
    named = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"]
    info = folder / "genenv_here-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: genenv-here\nVersion: 0\n")
    lines = [f"{name} = {at}" for name, at in named["mlflow.artifact_repository"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[mlflow.artifact_repository]", *lines]))
    return folder


@pytest.mark.slow
def test_an_alias_of_a_root_in_a_bucket_is_loaded_on_another_machine(
    api: None, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
):
    if server.process is None:
        server.start()
    with moto() as url:
        root = settled(url, tmp_path / "machine", monkeypatch)
        settings = (f"tracking.uri={server.uri}", "tracking.experiment=bucket")
        config = tiny(root, "tracking.enabled=true", *settings, epochs=1, run_id="bucket")
        run(config)
        made = versions(server, config)
        assert made and all(str(tmp_path) not in version.source for version in made)
        assert os.environ["AWS_SECRET_ACCESS_KEY"] not in str([dict(v) for v in made])
        elsewhere = tmp_path / "elsewhere"
        environment = {
            **os.environ,
            "GENENV_CACHE_DIR": str(elsewhere / "cache"),
            "GENENV_STATE_DIR": str(elsewhere / "state"),
            "MLFLOW_TRACKING_URI": server.uri,
            "PYTHONPATH": os.pathsep.join([str(PYPROJECT.parent), str(installed(elsewhere))]),
        }
        shutil.rmtree(tmp_path / "machine")
        names = [tracking.model_name("bucket", policy) for policy in ("agent", "env")]
        loader = subprocess.run(
            [sys.executable, "-c", LOADER, *names],
            env=environment, cwd=elsewhere, capture_output=True, text=True, timeout=400,
        )  # fmt: skip
    assert loader.returncode == 0, loader.stderr
    lines = [line.split() for line in loader.stdout.splitlines() if line.startswith("bucket-")]
    assert len(lines) == 4 and all(line[3] == "True" for line in lines)
