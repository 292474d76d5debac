"""Placement without a server: names, encoded inputs, reasons of pods.

Invariants: inputs come back as they were sent; a pod's status becomes one line that names the
cause, and a dead one's last words stand behind it, bounded and without secrets; one look at a pod
is one listing; secrets are found wherever a manifest names them; a run with work pools and no
server is refused with the remedy; an unreachable cluster is not an error; every stage can be
placed, and its flow knows it.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Cancelling, Completed, Crashed, Pending, Running
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
from tasks.placement import child as child_module
from tasks.placement.child import ChildRun
from tasks.placement.names import deployment_name
from tasks.placement.pods import LAST_LETTERS, LAST_LINES, PodLook, Pods, diagnosis, secrets_in
from tasks.score import ScoreInputs
from tasks.stage.inputs import decode, encode
from tasks.stage.key import parts_of
from tests.mutations import mutation


def pod(age: int, state: Any) -> dict[str, Any]:
    """Return a pod as the API lists it; a larger age is a newer one."""
    made = f"2026-11-25T00:00:{age:02d}Z"
    status = {"containerStatuses": [{"state": state}]}
    return {"metadata": {"creationTimestamp": made}, "status": status}


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
    config = resolve("tiny", overrides=["teacher.file=tasks.jsonl"], fields=fields)
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
    with pytest.raises(ConfigError, match=r"--stage 'roll' is not one of bootstrap, .*rollout"):
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
        assert pods.missing_secrets() == [] and pods.look(uuid4()) == PodLook()
        assert pods.last_words(PodLook(pod="p", container="c")) == ""


def hang_up(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            server.accept()[0].close()


CHILD = "tasks/placement/child.py"


class Followed(ChildRun):
    """A child whose server, pods and clock are a script: one (state, pod runs) for each look."""

    def __init__(self, looks: list[tuple[State, bool]]) -> None:
        self._script, self._now = looks, 0.0
        self._settings = PlacementConfig(lost_seconds=45.0)
        self._where, self._work_pool, self._run_id = "stage rollout", "gpu", uuid4()
        self._pods = self._api = self.parents = self
        self.words = list[str]()
        self.said: list[str] = []
        self.looks = 0

    def ask(self, call: Any) -> Any:
        return SimpleNamespace(state=self._script[0][0])

    def pause(self) -> None:
        self._script.pop(0)
        self._now += 10.0

    def check(self) -> None:
        assert self._script, "it was followed beyond its end"

    def look(self, flow_run: UUID) -> PodLook:
        self.looks += 1
        return PodLook(runs=self._script[0][1])

    def _sign(self, child: Any) -> bytes:
        return b"the same"

    def _doing(self) -> str:
        return self.words.pop(0) if self.words else ""

    def _say(self, message: str) -> None:
        self.said.append(message)


@mutation(
    "a node that goes while its pod starts is waited for", CHILD,
    "if not look.runs:", "if True:",
)  # fmt: skip
def test_a_pod_that_runs_and_says_nothing_is_lost(monkeypatch: pytest.MonkeyPatch):
    pulls, starts = (Pending(), False), (Pending(), True)
    child = Followed([pulls] * 30 + [starts] * 6)
    monkeypatch.setattr(child_module.time, "monotonic", lambda: child._now)
    with pytest.raises(StageError, match="is lost: no sign of life for 45 s"):
        child.follow()
    assert child.looks == 35  # one each
    assert len(child._script) == 2  # 300 s of pulling an image are no silence, 50 s are
    began = Followed([pulls, starts, (Running(), True), (Completed(), False)])
    monkeypatch.setattr(child_module.time, "monotonic", lambda: began._now)
    began.follow()


@mutation(
    "a child that was asked to end is joined", CHILD,
    "state.is_final() or state.is_cancelling()", "state.is_final()",
)  # fmt: skip
@pytest.mark.parametrize(
    ("states", "number"),
    [
        ([], 1),
        ([Running()], 1),
        ([Pending()], 1),
        ([Cancelling()], 2),
        ([Crashed(), Cancelling()], 3),
        ([Cancelling(), Running()], 2),
        ([Completed()], 2),
    ],
)
def test_which_child_is_joined(states: list[State], number: int, monkeypatch: pytest.MonkeyPatch):
    known = [
        SimpleNamespace(idempotency_key=f"x.{at}", state=state)
        for at, state in enumerate(states, start=1)
    ]
    child = Followed([])
    child.ask = lambda call: call(None)
    monkeypatch.setattr(child_module, "runs_with", lambda client, tag: known)
    assert child._attempt("tag") == number


@mutation(
    "a child on a work pool does not show how far it is", CHILD,
    'told, how_far = now, f": {words}"', "told = now",
)  # fmt: skip
@mutation(
    "a child on a work pool shows each step in a line", CHILD, "now - told >= LINE_S and", "",
)  # fmt: skip
def test_how_far_a_child_is_is_said_once_in_a_while(monkeypatch: pytest.MonkeyPatch):
    child = Followed([(Running(), True)] * 6 + [(Completed(), False)])
    monkeypatch.setattr(child_module.time, "monotonic", lambda: child._now)  # 10 s a look
    child._settings = PlacementConfig(lost_seconds=600.0)
    child.words = ["", "4 of 16 steps", "8 of 16 steps", "16 of 16 steps"]
    child.follow()
    runs = "runs on work pool gpu"
    first, second = f"{runs}: 4 of 16 steps", f"{runs}: 8 of 16 steps"
    assert child.said == [runs, first, first, first, second, second]


def test_what_is_being_cancelled_is_not_said_to_run(monkeypatch: pytest.MonkeyPatch):
    child = Followed([(Cancelling(), True), (Cancelled(), False)])
    monkeypatch.setattr(child_module.time, "monotonic", lambda: child._now)
    child.follow()
    assert child.said == ["is being cancelled on work pool gpu"]


@pytest.mark.parametrize(
    ("items", "runs"),
    [
        ([], False),
        ([pod(1, {"waiting": {"reason": "ContainerCreating"}})], False),
        ([pod(1, {"running": {}})], True),
        ([pod(2, {"waiting": {}}), pod(1, {"running": {}})], False),
        ([pod(1, None)], False),
    ],
)
def test_whether_the_newest_pod_runs(items: Any, runs: bool, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    def listed(self: Pods, path: str, **_: str) -> Any:
        asked.append(path)
        return list(items)

    monkeypatch.setattr(Pods, "_items", listed)
    if items:
        assert Pods("ns", frozenset()).look(uuid4()).runs is runs
        assert asked == ["/api/v1/namespaces/ns/pods"]


class Said(Pods):
    """Pods of which one has died; notes what is asked for its log."""

    def __init__(self, log: Any, message: str = "") -> None:
        super().__init__("ns", frozenset())
        self._log, self.asked = log, list[str]()
        terminated = {"exitCode": 137, "reason": "OOMKilled", "message": message}
        boxes = [
            {"name": "first", "state": {"terminated": {"exitCode": 0}}},
            {"name": "job", "state": {"terminated": terminated}},
        ]
        about = {"name": "pod-1", "creationTimestamp": "1"}
        self._pod = {"metadata": about, "status": {"containerStatuses": boxes, "phase": "Failed"}}

    def _items(self, path: str, **query: str) -> list[dict[str, Any]]:
        return [self._pod]

    def _get(self, path: str, accept: str, **query: str) -> Any:
        self.asked.append(f"{path} {query['container']}")
        return self._log


@mutation(
    "a log is repeated whole", "tasks/placement/pods.py",
    "ends[-LAST_LINES:])[-LAST_LETTERS:]", "ends)",
)  # fmt: skip
def test_a_dead_pods_last_words_are_bounded():
    pods = Said("\n".join(["begins", "", *(f"line {at}" for at in range(9)), ""]))
    words = pods.last_words(pods.look(uuid4()))
    assert words == " | ".join(f"line {at}" for at in range(9 - LAST_LINES, 9))
    assert pods.asked == ["/api/v1/namespaces/ns/pods/pod-1/log job"]
    assert len(pods.last_words(PodLook(message="x" * 5000))) == LAST_LETTERS
    left = Said("the log", message="what it left")
    assert left.last_words(left.look(uuid4())) == "what it left" and left.asked == []
    assert Said(None).last_words(pods.look(uuid4())) == ""  # the log may not be read
    assert pods.last_words(PodLook()) == ""


@mutation(
    "a pod's log is repeated with its secrets", "tasks/placement/pods.py",
    "words_without_secrets(said).splitlines()", "said.splitlines()",
)  # fmt: skip
def test_last_words_hold_no_secrets():
    pods = Said("GET https://me:hunter2@host/x failed\nHF_TOKEN=hunter2 is refused")
    words = pods.last_words(pods.look(uuid4()))
    assert "hunter2" not in words and "host/x failed | HF_TOKEN=" in words


@mutation(
    "an error keeps a pod's last words to itself", CHILD,
    'f"{why}; its last words: {words}" if words else why', "why",
)  # fmt: skip
def test_an_error_ends_with_the_pods_last_words():
    child = Followed([])
    child._pods = Said("loading\nKilled")
    assert "OOMKilled" in child._why(Crashed(message="exit 137"))
    assert child._why(Crashed(message="exit 137")).endswith("; its last words: loading | Killed")
    child._pods = Said(None)
    assert "last words" not in child._why(Crashed(message="exit 137"))


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
