"""Runs that start together, each in its own process, on one root.

Invariants: two identical runs and a different one all end well, and compute every stage once
between them, also those that differing runs have in common; the root is whole afterwards; each
MLflow run and model version is made once.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from genenv_core.storage.records.runs import RunLog, list_runs
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.verify import verify
from tests.pipeline.builders import manifests, tiny
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
def test_runs_that_start_together_compute_every_stage_once(
    begun: Callable[[Path], None], tmp_path: Path
):
    root = tmp_path / "root"
    begun(root)
    command = ("--run-id", "x", "--epochs", "1")
    together(root, command, command, ("--run-id", "y", *command[2:], "--set", "rwr.steps=1"))
    store = LocalStore(root)
    x, y = (
        {(epoch, stage): manifest.key for (epoch, stage), manifest in manifests(one).items()}
        for one in (tiny(root, epochs=1, run_id=run) for run in ("x", "y"))
    )
    assert (len(x), len(y)) == (3 + 9, 3 + 9)
    assert computed_keys(store) == dict.fromkeys({*x.values(), *y.values()}, 1)
    own = {stage for (_, stage), key in x.items() if key not in y.values()}
    assert "rwr_update" in own and not own & {"generate_tasks", "rollout", "grpo_update"}
    assert verify(store).damaged == []
    assert store.list("leases") == []

    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{root / 'mlflow' / 'mlflow.db'}")
    (experiment,) = [e for e in client.search_experiments() if e.name != "Default"]
    assert len(client.search_runs([experiment.experiment_id])) == 2
    versions = client.search_model_versions()
    made = {(v.run_id, v.name, v.tags["genenv.stage_key"]) for v in versions}
    assert len(made) == len(versions) > 0
