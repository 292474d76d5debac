"""Placement without a server: names, encoded inputs, reasons of pods.

Invariants: inputs come back as they were sent; a pod's status becomes one line that names the
cause; secrets are found wherever a manifest names them; a run with work pools and no server is
refused with the remedy; an unreachable cluster is not an error; every stage can be placed, and its
flow knows it.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import ValidationError

from flows.cli.machines.up import work_pool
from flows.cli.runs.run import execute
from flows.stages import TASKS
from genenv_core.config.load import resolve
from genenv_core.config.sections.placement import PlacementConfig
from genenv_core.config.stages import STAGES
from genenv_core.errors import ConfigError, StageError
from genenv_core.exchange.external import offline_input
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef, FileRef
from tasks.placement.names import deployment_name
from tasks.placement.pods import Pods, diagnosis, secrets_in
from tasks.score import ScoreInputs
from tasks.stage.inputs import decode, encode
from tasks.stage.key import parts_of

REF = ArtifactRef(stage="pool", key="k", digest="d", rows=3, facts={"a": [1.5]}, checkpoints={})


@dataclass(frozen=True)
class Inner:
    rate: float


@dataclass(frozen=True)
class Inputs:
    pool: ArtifactRef
    history: Sequence[ArtifactRef]
    none: Sequence[ArtifactRef]
    agent: CheckpointRef
    file: FileRef
    train: bool
    made: Inner
    update: ArtifactRef | None


def test_inputs_come_back_as_they_were_sent():
    agent = CheckpointRef(artifact=REF, name="agent", digest="d", policy_version=2)
    file = FileRef(path="/data/base.jsonl", sha256="e")
    inputs = Inputs(REF, [REF, REF], [], agent, file, True, Inner(1.0), None)
    sent = json.loads(json.dumps(encode(inputs)))
    back = decode(Inputs, sent)
    assert back == inputs
    assert back.train is True and isinstance(back.made.rate, float)
    with pytest.raises(StageError, match=r"pool.digest of Inputs: .*install the same commit"):
        decode(Inputs, {**sent, "pool": {"stage": "pool", "key": "k"}})


def test_a_file_is_given_under_its_full_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.jsonl").write_text("{}")
    fields = {"arm": "offline", "root": str(tmp_path)}
    config = resolve("tiny", overrides=["data.offline_file=tasks.jsonl"], fields=fields)
    given = offline_input(config)
    assert given and given.path == str(tmp_path / "tasks.jsonl")


def test_every_stage_can_be_placed():
    assert list(TASKS) == list(STAGES)
    assert {name for name in PlacementConfig.model_fields if "seconds" not in name} == set(STAGES)
    placed = PlacementConfig(rollout="gpu", grpo_update="big.gpu")
    assert placed.work_pools() == {"rollout": "gpu", "grpo_update": "big.gpu"}
    assert PlacementConfig().work_pools() == {}
    assert deployment_name("rollout", "gpu") == "stage/rollout-gpu"
    for bad in ("", "a/b", "-gpu", "x" * 64):
        with pytest.raises(ValidationError):
            PlacementConfig(rollout=bad)


def test_a_stage_that_another_genenv_would_compute_is_refused(tmp_path: Path):
    config = resolve("tiny", fields={"root": str(tmp_path), "run_id": "x"})
    task = TASKS["score"]
    inputs = ScoreInputs(REF, REF, REF)
    parts = parts_of(task.stage, config, 1, inputs)
    changed = {**parts, "code": "0" * 16}
    with pytest.raises(
        StageError, match=r"different versions of genenv, or .*: code .*same commit"
    ):
        task.compute_here(config, 1, encode(inputs), changed)
    assert not (tmp_path / "runs").exists()


def test_work_pools_need_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    config = resolve("tiny", overrides=["placement.rollout=gpu"], fields={"root": str(tmp_path)})
    with pytest.raises(ConfigError, match=r"placement.rollout 'gpu'.*PREFECT_API_URL.*=inline"):
        execute(config, as_json=True)
    assert list(tmp_path.iterdir()) == []


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(ConfigError, match="PREFECT_API_URL names no Prefect server"):
        work_pool("gpu")
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    with pytest.raises(ConfigError, match=r"--stage 'roll' is none of bootstrap, .*rollout"):
        work_pool("gpu", stage=["roll"])
    with pytest.raises(ConfigError, match=r"gpu.yaml: cannot be read"):
        work_pool("gpu", settings=tmp_path / "gpu.yaml")


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"name": "prefect-job", "state": state}]}


def ended(reason: str, code: int) -> dict[str, Any]:
    state = {"terminated": {"reason": reason, "exitCode": code}}
    return {"phase": "Failed", "containerStatuses": [{"name": "prefect-job", "state": state}]}


UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        }
    ],
}


@pytest.mark.parametrize(
    ("status", "words", "hopeless"),
    [
        (waiting("ImagePullBackOff", 'Back-off pulling image "x:1"'), ["pull", "x:1"], True),
        (waiting("CreateContainerConfigError", 'secret "s" not found'), ['secret "s"'], True),
        (waiting("InvalidImageName", "bad name"), ["InvalidImageName", "bad name"], True),
        (UNSCHEDULABLE, ["Insufficient nvidia.com/gpu"], False),
        (ended("OOMKilled", 137), ["OOMKilled", "memory limit"], False),
        (ended("Error", 139), ["status 139", "Error"], False),
        (ended("Error", 0) | {"reason": "Evicted", "message": "low on memory"}, ["evicted"], False),
        ({"phase": "Failed", "reason": "Shutdown", "message": "node"}, ["Shutdown: node"], False),
    ],
)
def test_what_a_pod_says_names_the_cause(status: Any, words: list[str], hopeless: bool):
    found = diagnosis(status)
    assert found is not None
    for word in words:
        assert word in found[0]
    assert found[1] is hopeless and "\n" not in found[0]


@pytest.mark.parametrize("status", [{}, {"phase": "Running"}, waiting("ContainerCreating")])
def test_a_pod_that_is_well_has_nothing_to_say(status: Any):
    assert diagnosis(status) is None


@pytest.mark.parametrize("listening", [True, False], ids=["hangs up", "is away"])
def test_a_cluster_that_cannot_be_asked_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listening: bool
):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listening:
            server.listen()
            threading.Thread(target=hang_up, args=(server,), daemon=True).start()
        named = {"name": "d"}
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{**named, "cluster": {"server": url}}],
            "users": [{**named, "user": {"token": "x"}}],
            "contexts": [{**named, "context": {"cluster": "d", "user": "d"}}],
            "current-context": "d",
        }
        (tmp_path / "config").write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        pods = Pods("genenv", frozenset({"a"}))
        assert pods.missing_secrets() == [] and pods.trouble(uuid4()) is None


def hang_up(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            server.accept()[0].close()


def test_secrets_are_found_wherever_they_are_named():
    pod = {
        "containers": [
            {
                "envFrom": [{"secretRef": {"name": "a"}}],
                "env": [
                    {"name": "X", "valueFrom": {"secretKeyRef": {"name": "b", "key": "k"}}},
                    {
                        "name": "Y",
                        "valueFrom": {"secretKeyRef": {"name": "z", "key": "k", "optional": True}},
                    },
                    {"name": "Z", "value": "secretRef"},
                ],
            }
        ],
        "volumes": [{"name": "v", "secret": {"secretName": "c"}}],
        "imagePullSecrets": [{"name": "d"}],
    }
    assert sorted(secrets_in(pod)) == ["a", "b", "c", "d"]
