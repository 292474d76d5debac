"""The double of the cluster, tested by itself: what it refuses, and what becomes of pods.

Invariants: jobs that a real API server would refuse are refused; tokens may do what their Role
grants and nothing else; a pod goes only where labels, taints and room fit; its process gets its
environment, its exit status is the pod's; deleting and evicting end it by SIGTERM; an old watch
gets 410.
"""

from __future__ import annotations

import copy
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.deploy.pod_settings import PodSettings, job_manifest
from tests.infra.cluster import Cluster, Node
from tests.infra.cluster.kubelet import Kubelet
from tests.infra.conftest import granted
from tests.waiting import BOUND_S, until

GPU = "nvidia.com/gpu"
JOBS = "/apis/batch/v1/namespaces/genenv/jobs"


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    room = {"cpu": "8", "memory": "64Gi", "ephemeral-storage": "200Gi"}
    nodes = [
        Node("cpu-1", room, {"zone": "a"}),
        Node("gpu-1", {**room, GPU: "1"}, {"zone": "b"}, {GPU: "NoSchedule"}),
    ]
    made = Cluster("genenv", nodes, granted(), tmp_path_factory.mktemp("double"))
    made.put("persistentvolumeclaims", "genenv-data", spec={"folder": "/nowhere"})
    made.images.add("genenv:1")
    yield made
    made.close()


def job(code: str = "pass", **settings: Any) -> dict[str, Any]:
    """Return a job that runs a line of Python."""
    pods = PodSettings(**{"image": "genenv:1", "models_claim": None, "grace_seconds": 5} | settings)
    made = job_manifest(pods)
    made["metadata"] = {"generateName": "x-", "namespace": "genenv"}
    box = made["spec"]["template"]["spec"]["containers"][0]
    box |= {"image": pods.image, "args": [sys.executable, "-c", code]}
    box["env"] = [
        {"name": "GENENV_ROOT", "value": "/data/runs"},
        {"name": "PLACE", "value": "/tmp"},
    ]
    return made


def ask(
    double: Cluster, path: str, body: Any = None, method: str = "", token: str = "genenv-worker"
) -> tuple[int, Any]:
    """Send a request; returns status and answer."""
    request = urllib.request.Request(
        double.url + path,
        data=json.dumps(body).encode() if body is not None else None,
        method=method or ("GET" if body is None else "POST"),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=BOUND_S) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def pod_of(double: Cluster, body: dict[str, Any], *phases: str) -> dict[str, Any]:
    """Create a job; returns its pod once the pod is in one of the phases."""
    status, made = ask(double, JOBS, body)
    assert status == 201, made
    name = made["metadata"]["name"]

    def look() -> dict[str, Any] | None:
        return next(
            (
                pod
                for pod in double.pods()
                if pod["metadata"]["labels"]["job-name"] == name
                and (pod["status"]["phase"] in phases if phases else "conditions" in pod["status"])
            ),
            None,
        )

    return until(look)


def scheduled(pod: dict[str, Any]) -> str:
    (condition,) = pod["status"]["conditions"]
    return pod["spec"].get("nodeName") or condition["message"]


def test_pods_compute_as_this_machine_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    given: Any = None
    kubelet = Kubelet(given, tmp_path, set(), {})
    assert kubelet.env["OPENBLAS_CORETYPE"] == "Haswell"
    assert "HOME" not in kubelet.env


def test_a_pod_gets_its_environment_and_its_exit_status_is_the_pods(double: Cluster):
    code = "import os, sys; print(os.environ['GENENV_ROOT'], os.environ['PLACE']); sys.exit(3)"
    pod = pod_of(double, job(code), "Failed", "Succeeded")
    assert pod["status"]["phase"] == "Failed"
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    root, place = double.log(pod).split()
    assert root == "/nowhere/runs" and Path(place).name == "tmp" and place != "/tmp"
    made = until(lambda: ask(double, f"{JOBS}/{pod['metadata']['labels']['job-name']}")[1])
    until(lambda: "conditions" in ask(double, f"{JOBS}/{made['metadata']['name']}")[1]["status"])
    assert pod_of(double, job(), "Succeeded")["status"]["phase"] == "Succeeded"


@pytest.mark.parametrize(
    ("path", "value", "status", "words"),
    [
        (("spec", "backofLimit"), 0, 422, "backofLimit"),
        (("spec", "backoffLimit"), "0", 422, "backoffLimit"),
        (("spec", "template", "spec", "hostNetwork"), True, 403, "restricted"),
        (("spec", "template", "spec", "securityContext"), {}, 403, "may run as root"),
        (("spec", "template", "spec", "restartPolicy"), "Sometimes", 403, "'Sometimes'"),
    ],
)
def test_a_job_that_an_api_server_refuses_is_refused(
    double: Cluster, path: Any, value: Any, status: int, words: str
):
    body = copy.deepcopy(job())
    here: Any = body
    for name in path[:-1]:
        here = here[name]
    here[path[-1]] = value
    got, answer = ask(double, JOBS, body)
    assert got == status and words in answer["message"]


def test_a_token_may_do_what_its_role_grants(double: Cluster):
    pods, secrets = (f"/api/v1/namespaces/genenv/{name}" for name in ("pods", "secrets"))
    double.put("secrets", "genenv-environment", stringData={"A": "b"})
    assert ask(double, pods, token="genenv-flow")[0] == 200
    assert ask(double, f"{secrets}/genenv-environment", token="genenv-flow")[0] == 200
    assert ask(double, f"{secrets}/genenv-registry", token="genenv-flow")[0] == 404
    for path, token in (
        (secrets, "genenv-flow"),
        (f"{secrets}/genenv-database", "genenv-flow"),
        (f"{secrets}/genenv-environment", "genenv-worker"),
        ("/api/v1/namespaces/kube-system/pods", "genenv-worker"),
        (pods, "genenv-stage"),
        (pods, ""),
    ):
        assert ask(double, path, token=token)[0] == 403, (path, token)
    assert ask(double, JOBS, job(), token="genenv-flow")[0] == 403


def test_a_pod_goes_where_it_fits(double: Cluster):
    assert scheduled(pod_of(double, job())) == "cpu-1"
    assert scheduled(pod_of(double, job(gpus=1))) == "gpu-1"
    alone = scheduled(pod_of(double, job(node_selector={"zone": "b"})))
    assert "untolerated taint" in alone and "didn't match" in alone
    assert f"2 Insufficient {GPU}" in scheduled(pod_of(double, job(gpus=9)))
    assert 'persistentvolumeclaim "gone" not found' in scheduled(
        pod_of(double, job(data_claim="gone"))
    )


def test_pods_that_cannot_start_say_why(double: Cluster):
    def why(body: dict[str, Any]) -> tuple[str, str]:
        def look() -> tuple[str, str] | None:
            found = double.look(lambda: double.store.get("pods", "genenv", name))
            waiting = found["status"].get("containerStatuses", [{}])[0].get("state", {})
            return tuple(waiting.get("waiting", {}).values()) or None  # type: ignore[return-value]

        name = pod_of(double, body)["metadata"]["name"]
        return until(look)

    assert why(job(secrets=("nope",))) == (
        "CreateContainerConfigError",
        'secret "nope" not found',
    )
    assert "typo" in why(job(image="genenv:typo"))[1]


SLEEPER = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("asked to end", flush=True), sys.exit(0)))
print("up", flush=True)
time.sleep(60)
"""


def test_deleting_a_job_and_evicting_a_pod_ask_the_process_to_end(double: Cluster):
    first, second = (pod_of(double, job(SLEEPER), "Running") for _ in range(2))
    until(lambda: "up" in double.log(first) and "up" in double.log(second))
    name = first["metadata"]["labels"]["job-name"]
    assert ask(double, f"{JOBS}/{name}", method="DELETE")[0] == 200
    until(lambda: ask(double, f"{JOBS}/{name}")[0] == 404)
    assert "asked to end" in double.log(first)
    double.evict(second)

    def look() -> dict[str, Any] | None:
        found = double.look(lambda: double.store.get("pods", "genenv", second["metadata"]["name"]))
        return found if found["status"]["phase"] == "Failed" else None

    assert until(look)["status"]["reason"] == "Evicted" and "asked to end" in double.log(second)


def test_a_watch_from_a_forgotten_version_is_refused(double: Cluster):
    pod_of(double, job(), "Succeeded")
    watch = f"{JOBS}?watch=true&timeoutSeconds=1&resourceVersion=100"
    with urllib.request.urlopen(
        urllib.request.Request(
            double.url + watch, headers={"Authorization": "Bearer genenv-worker"}
        ),
        timeout=BOUND_S,
    ) as answer:
        kinds = [json.loads(line)["type"] for line in answer]
    assert "ADDED" in kinds and "MODIFIED" in kinds
    double.compact()
    with urllib.request.urlopen(
        urllib.request.Request(
            double.url + watch, headers={"Authorization": "Bearer genenv-worker"}
        ),
        timeout=BOUND_S,
    ) as answer:
        (line,) = answer
    assert json.loads(line)["object"]["code"] == 410
