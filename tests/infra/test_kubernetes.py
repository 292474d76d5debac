"""Stages as pods: real Prefect server, real Kubernetes worker, real stage processes, and a double
of the cluster behind the worker's client.

Invariants: a co-evolution with GPU stages in pods ends like an inline one, with the rights of the
manifests' Roles and no others; an evicted stage continues in a new pod from its kept files, and
nothing is done twice; any cause that keeps a pod from starting or ends it fails the stage and is
named; a cancelled flow leaves no pod; an API that is away for a while costs only time.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from flows.deploy.deployments import DEPLOYMENTS
from flows.deploy.pod_settings import PodSettings, job_template, read_settings
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import EPOCH_STAGES, STAGES
from genenv_core.errors import StageError
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from tasks.stage import progress
from tasks.stage.progress import Event, listening
from tests.hold.forks import Forks
from tests.infra.cluster import Cluster
from tests.infra.conftest import KUBERNETES
from tests.pipeline.builders import computed, manifests, run, states, tiny
from tests.pipeline.workers import child_states, children, environment, worker
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
IN_FORKS = pytest.mark.usefixtures("forked")

GPU_STAGES = tuple(item.name for item in DEPLOYMENTS if item.gpu and item.name in EPOCH_STAGES)


def settings(**changes: Any) -> PodSettings:
    """Return the pod settings of the overlay single-node, with the session's Prefect server."""
    from prefect.settings import PREFECT_API_URL

    known = read_settings(KUBERNETES / "overlays" / "single-node" / "gpu.yaml")
    url = {"api_url": str(PREFECT_API_URL.value()), "grace_seconds": 30}
    return PodSettings.model_validate({**known.model_dump(), **url, **changes})


def worker_env(cluster: Cluster) -> dict[str, str]:
    """Return the worker's environment: that of its manifest, with shorter poll intervals."""
    items = list(yaml.safe_load_all((KUBERNETES / "base" / "worker.yaml").read_text()))
    declared = items[0]["spec"]["template"]["spec"]["containers"][0]["env"]
    return {
        **{item["name"]: item["value"] for item in declared},
        **environment(),
        "KUBECONFIG": str(cluster.kubeconfig("genenv-worker")),
        "PREFECT_INTEGRATIONS_KUBERNETES_WORKER_CREATE_JOB_RETRY_DELAY_SECONDS": "1",
    }


@pytest.fixture(scope="module")
def k8s(
    api: None, cluster: Cluster, tiny_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Add volumes, secrets, an image, a work pool `gpu` and its worker to the cluster."""
    from flows.deploy.stage_on_pool import make_work_pool

    cluster.put("persistentvolumeclaims", "genenv-data", spec={"folder": str(tiny_root)})
    models = tmp_path_factory.mktemp("models")
    cluster.put("persistentvolumeclaims", "genenv-models", spec={"folder": str(models)})
    cluster.put("secrets", "genenv-environment", stringData={"HF_TOKEN": "hf_secret"})
    cluster.images.add(settings().image)
    os.environ["KUBECONFIG"] = str(cluster.kubeconfig("genenv-flow"))
    make_work_pool("gpu", kind="kubernetes", stages=STAGES, template=job_template(settings()))
    log = tmp_path_factory.mktemp("worker") / "log"
    with worker("gpu", log, "kubernetes", worker_env(cluster)):
        yield cluster
    del os.environ["KUBECONFIG"]


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Yield what forks the pods of a test that is about none's start."""
    with Forks(tmp_path_factory.mktemp("forks")) as made:
        yield made


@pytest.fixture
def forked(forks: Forks, k8s: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the pods of this test."""
    monkeypatch.setattr(k8s.kubelet, "python", forks.python)


def change_pods(**changes: Any) -> None:
    """Change the pods of the work pool `gpu`."""
    from flows.deploy.stage_on_pool import make_work_pool

    make_work_pool(
        "gpu", kind="kubernetes", stages=["rollout"], template=job_template(settings(**changes))
    )


@pytest.fixture
def other_pods(k8s: Cluster) -> Iterator[Any]:
    """Return a function that changes the work pool's pods until the test ends."""
    yield change_pods
    change_pods()


def only_rollout(root: Path, run_id: str, number: int, *overrides: str) -> RunConfig:
    """Return a run whose rollout is on the work pool; `number` makes its stage key unique."""
    places = ("placement.rollout=gpu", "placement.poll_seconds=0.3", f"rollout.max_turns={number}")
    return tiny(root, *places, "rollout.shard_groups=1", *overrides, epochs=1, run_id=run_id)


def attempts(config: RunConfig, stage: str) -> list[str]:
    return [state for _, name, state in states(config) if name == stage]


def failing(config: RunConfig) -> str:
    """Return the error with which a run fails."""
    with pytest.raises(StageError) as caught:
        run(config)
    return str(caught.value)


class InThread:
    """A run in a thread of its own."""

    def __init__(self, config: RunConfig) -> None:
        self.error: BaseException | None = None
        # The session's Prefect server is in the context, which a new thread would not have.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run, config), daemon=True)
        self._thread.start()

    def _run(self, config: RunConfig) -> None:
        try:
            run(config)
        except BaseException as error:
            self.error = error

    def end(self) -> BaseException | None:
        self._thread.join(600)
        assert not self._thread.is_alive()
        return self.error


def running_pod(k8s: Cluster, run_id: str) -> dict[str, Any] | None:
    """Return the running pod of a run's newest child."""
    found = children(run_id)
    pods = k8s.pods(found[-1].id) if found else []
    return next((pod for pod in pods if pod["status"]["phase"] == "Running"), None)


@IN_FORKS
def test_a_coevolution_whose_gpu_stages_are_pods(
    k8s: Cluster, begun: Callable[[Path], None], tiny_root: Path, tmp_path: Path
):
    places = [f"placement.{stage}=gpu" for stage in GPU_STAGES]
    away = tiny(tiny_root, *places, "placement.poll_seconds=0.3", epochs=1, run_id="pods")
    begun(tmp_path / "inline")
    inline = tiny(tmp_path / "inline", epochs=1, run_id="inline")
    run(away)
    run(inline)
    ours, theirs = manifests(inline), manifests(away)
    assert {k: m.digest for k, m in ours.items()} == {k: m.digest for k, m in theirs.items()}
    made = child_states("pods")
    assert sorted(made) == sorted((s, "Completed") for s in (*GPU_STAGES, "evaluate"))
    tried = states(away)
    assert len(tried) == len(computed(tried)) == len(ours)
    for child in children("pods"):
        (pod,) = k8s.pods(child.id)
        assert pod["spec"]["nodeName"] == "gpu-1" and pod["status"]["phase"] == "Succeeded"
        assert "hf_secret" not in str(pod) and "hf_secret" not in str(child.parameters)
    assert k8s.api.refused == []  # the Roles are enough for worker and flow


def test_evicted_stages_go_on_in_new_pods_and_nothing_is_done_twice(
    k8s: Cluster, begun: Callable[[Path], None], tiny_root: Path, tmp_path: Path
):
    work = ("grpo.passes=4", "grpo.groups_per_step=1")
    kept = ("execution.checkpoint_seconds=0", "placement.grpo_update=gpu")
    config = only_rollout(tiny_root, "evicted", 11, *work, *kept)
    store = LocalStore(tiny_root)

    def kept_shards() -> list[str]:
        keys = [a.stage_key for a in RunLog(store, "evicted").attempts() if a.stage == "rollout"]
        return [path for path in store.list("shards") if keys and keys[0] in path]

    held = k8s.kubelet.holds.at("/shards/", number=3)
    going = InThread(config)
    until(held.exists)
    shards = kept_shards()
    assert len(shards) == 2
    before = {path: (tiny_root / path).stat().st_ino for path in shards}
    held = k8s.kubelet.holds.at("/seal.json", number=2)
    k8s.evict(until(lambda: running_pod(k8s, "evicted")))
    until(held.exists)
    assert attempts(config, "rollout") == ["interrupted", "computed"]
    assert {path: (tiny_root / path).stat().st_ino for path in shards} == before

    assert list((tiny_root / "progress/grpo_update").rglob("seal.json"))
    k8s.evict(until(lambda: running_pod(k8s, "evicted")))
    assert going.end() is None
    assert attempts(config, "grpo_update") == ["interrupted", "computed"]
    assert child_states("evicted") == [("rollout", "Completed"), ("grpo_update", "Completed")]
    for child in children("evicted"):
        first, second = sorted(k8s.pods(child.id), key=lambda p: p["metadata"]["resourceVersion"])
        assert {first["status"].get("reason"), second["status"].get("reason")} == {"Evicted", None}
        assert child.run_count == 2
    logs = [k8s.log(pod) for pod in k8s.pods(children("evicted")[1].id)]
    assert sum("resumed_at=" in log for log in logs) == 1, logs

    begun(tmp_path / "inline")
    same = ("rollout.max_turns=11", "rollout.shard_groups=1", *work)
    inline = tiny(tmp_path / "inline", *same, epochs=1, run_id="inline")
    run(inline)
    ours, theirs = manifests(inline), manifests(config)
    assert {k: m.digest for k, m in ours.items()} == {k: m.digest for k, m in theirs.items()}


def test_a_pod_without_enough_memory_says_so(k8s: Cluster, tiny_root: Path, other_pods: Any):
    other_pods(memory="150Mi", shared_memory="1Mi")
    error = failing(only_rollout(tiny_root, "oom", 12))
    assert "stage rollout of epoch 1 on work pool gpu crashed: " in error
    assert "OOMKilled" in error and "memory limit" in error
    (child,) = children("oom")
    (pod,) = k8s.pods(child.id)
    (*_, last) = filter(str.strip, k8s.log(pod).splitlines())
    assert error.endswith(" ".join(last.split())), "its log's last line"
    assert child_states("oom") == [("rollout", "Crashed")]


def test_a_node_without_the_gpus_asked_for(
    k8s: Cluster, tiny_root: Path, other_pods: Any, monkeypatch: pytest.MonkeyPatch
):
    other_pods(gpus=8)
    config = only_rollout(tiny_root, "gpus", 13)
    passed = [0.0]

    def listener(event: Event) -> None:
        if "Insufficient" in event.message:
            passed[0] = config.placement.start_seconds

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0], sleep=time.sleep)
    monkeypatch.setattr("tasks.placement.child.time", clock)
    with listening(listener):
        error = failing(config)
    assert "did not start in" in error and "Insufficient nvidia.com/gpu" in error
    child = children("gpus")[0]
    until(lambda: child_states("gpus") == [("rollout", "Cancelled")])
    until(lambda: not k8s.pods(child.id) and not k8s.jobs(child.id))


def test_a_missing_secret_is_found_before_anything_is_sent(
    k8s: Cluster, tiny_root: Path, other_pods: Any
):
    k8s.drop("secrets", "genenv-environment")
    try:
        error = failing(only_rollout(tiny_root, "secret", 14))
    finally:
        k8s.put("secrets", "genenv-environment", stringData={"HF_TOKEN": "hf_secret"})
    assert "there is no secret 'genenv-environment' in namespace genenv" in error
    assert children("secret") == []


def test_an_image_that_cannot_be_pulled(
    k8s: Cluster, tiny_root: Path, other_pods: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tasks.placement.child.STUCK_S", 0.0)
    other_pods(image="genenv-gpu:0.1.typo")
    error = failing(only_rollout(tiny_root, "image", 15))
    assert "Image pull failed" in error and "genenv-gpu:0.1.typo" in error
    until(lambda: child_states("image") == [("rollout", "Cancelled")])


@pytest.fixture
def cancelling() -> Iterator[None]:
    yield
    with listening(lambda event: None):  # clears the mark
        pass


def test_a_flow_that_is_cancelled_while_its_pod_is_pending(
    k8s: Cluster, tiny_root: Path, other_pods: Any, cancelling: None
):
    other_pods(node_selector={"zone": "nowhere"})
    going = InThread(only_rollout(tiny_root, "pending", 16))
    child = until(lambda: (children("pending") or [None])[0])
    until(lambda: k8s.pods(child.id))
    progress.cancel()
    assert going.end() is not None
    until(lambda: child_states("pending") == [("rollout", "Cancelled")])
    until(lambda: not k8s.pods(child.id) and not k8s.jobs(child.id))


@IN_FORKS
def test_a_flow_that_is_cancelled_while_its_pod_runs(
    k8s: Cluster, tiny_root: Path, cancelling: None
):
    held = k8s.kubelet.holds.at("/shards/")
    going = InThread(only_rollout(tiny_root, "running", 17))
    until(held.exists)
    pod = until(lambda: running_pod(k8s, "running"))
    progress.cancel()
    assert going.end() is not None
    until(lambda: child_states("running") == [("rollout", "Cancelled")])
    until(lambda: running_pod(k8s, "running") is None)
    container = k8s.kubelet.containers[pod["metadata"]["uid"]]
    assert container.process and container.process.returncode is not None
    assert not container.family()


@contextlib.contextmanager
def unreachable(k8s: Cluster, *asking: str) -> Iterator[None]:
    """Keep the API away until each of these, named `account method`, has asked four times."""
    k8s.leave(True)
    try:
        yield
        until(lambda: all(k8s.api.missed[f"Bearer {one}"] >= 4 for one in asking))
    finally:
        k8s.leave(False)


@IN_FORKS
def test_an_api_that_is_away_costs_time_only(k8s: Cluster, tiny_root: Path):
    config = only_rollout(tiny_root, "away", 18)
    # The worker cannot make the job, nor can the flow ask about it.
    with unreachable(k8s, "genenv-worker POST", "genenv-flow GET"):
        going = InThread(config)
    until(lambda: running_pod(k8s, "away"))
    with unreachable(k8s, "genenv-worker GET"):  # its watches
        pass
    assert going.end() is None
    assert attempts(config, "rollout") == ["computed"]


@IN_FORKS
def test_a_pod_that_dies_is_seen_by_a_worker_whose_watch_had_expired(k8s: Cluster, tiny_root: Path):
    held = k8s.kubelet.holds.at("/shards/")
    going = InThread(only_rollout(tiny_root, "expired", 19))
    until(held.exists)
    pod = until(lambda: running_pod(k8s, "expired"))
    k8s.compact()
    k8s.look(lambda: k8s.kubelet.containers[pod["metadata"]["uid"]].signal(signal.SIGKILL))
    error = going.end()
    assert (
        "rollout of epoch 1 on work pool gpu crashed: its container ended with status 137"
        in str(error)
    )
    assert child_states("expired") == [("rollout", "Crashed")]
