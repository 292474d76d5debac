"""Runs that start together, each in its own process, on one root.

Invariants: two identical runs both end well and compute every stage once between them; two
different ones share their common stages; the root is whole afterwards; each MLflow run and model
version is made once.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.runs import RunLog, list_runs
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.verify import verify
from tests.pipeline.builders import sql, tiny
from tests.pipeline.commands import environment


def together(root: Path, *commands: tuple[str, ...]) -> None:
    """Run the commands at the same time, and assert that all succeed."""
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "flows.cli.app", "run", "tiny", "--root", str(root), *arguments],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for arguments in commands
    ]
    for process in started:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output


def computed_keys(store: LocalStore) -> Counter[str]:
    """Return how often each stage key was computed, over all runs."""
    attempts = [attempt for run in list_runs(store) for attempt in RunLog(store, run).attempts()]
    assert {attempt.state for attempt in attempts} <= {"computed", "cached"}
    return Counter(a.stage_key for a in attempts if a.state == "computed")


@pytest.mark.slow
def test_two_identical_runs_compute_every_stage_once(tmp_path: Path):
    command = ("--run-id", "x", "--epochs", "1")
    together(tmp_path, command, command)
    store = LocalStore(tmp_path)
    log = RunLog(store, "x")
    keys = {key for epoch in (0, 1) for s, key in log.keys(epoch).items() if s != "tracked"}
    assert computed_keys(store) == dict.fromkeys(keys, 1)
    assert len(keys) == 3 + 9
    for epoch in (0, 1):
        for stage, key in log.keys(epoch).items():
            assert stage == "tracked" or Artifacts(store).find(stage, key) is not None
    assert verify(store).damaged == []
    assert store.list("leases") == []
    config = tiny(tmp_path, epochs=1, run_id="x")
    assert sql(config, "SELECT * FROM stage_runs WHERE state = 'computed'").height == len(keys)

    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow' / 'mlflow.db'}")
    (experiment,) = [e for e in client.search_experiments() if e.name != "Default"]
    assert len(client.search_runs([experiment.experiment_id])) == 1
    versions = client.search_model_versions()
    made = {(v.name, v.tags["genenv.stage_key"]) for v in versions}
    assert len(made) == len(versions) > 0


@pytest.mark.slow
def test_two_different_runs_share_bootstrap(tmp_path: Path):
    off = ("--epochs", "1", "--set", "tracking.enabled=false")
    together(
        tmp_path,
        ("--run-id", "x", *off),
        ("--run-id", "y", *off, "--set", "curriculum.alpha=0.6"),
    )
    store = LocalStore(tmp_path)
    here, there = (RunLog(store, run) for run in ("x", "y"))
    assert here.keys(0)["bootstrap"] == there.keys(0)["bootstrap"]
    assert here.keys(1)["score"] != there.keys(1)["score"]
    assert set(computed_keys(store).values()) == {1}
    assert verify(store).damaged == []
