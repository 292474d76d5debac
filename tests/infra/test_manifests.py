"""The manifests in infra/kubernetes, as kubectl renders them, and the pods of the work pools.

Invariants: every object fits the Kubernetes schemas in strict mode; selectors, references, enums
and quantities hold; pods fit the level `restricted`, with requests and probes; rights are a Role's
and no secret is held; the quota has room for all of it. Every check finds what it is for.
"""

from __future__ import annotations

import copy
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from flows.deploy.pod_settings import job_manifest, read_settings
from tests.infra import checks
from tests.infra.checks import Object, Pods
from tests.waiting import BOUND_S

INFRA = Path(__file__).parents[2] / "infra" / "kubernetes"
OVERLAYS = ("single-node", "cluster")
SECRETS = {"genenv-database", "genenv-environment", "genenv-registry"}
"""What docs/kubernetes.md has people make."""

VERSION = "1.32"

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


@cache
def rendered(overlay: str) -> list[Object]:
    done = subprocess.run(
        ["kubectl", "kustomize", str(INFRA / "overlays" / overlay)],
        capture_output=True,
        text=True,
        check=True,
        timeout=BOUND_S,
    )
    assert done.stderr == ""
    return list(yaml.safe_load_all(done.stdout))


def pods(overlay: str) -> list[Pods]:
    """Return the pods of an overlay that people or work pools create."""
    found: list[Pods] = []
    for name in ("gpu", "flows"):
        manifest = job_manifest(read_settings(INFRA / "overlays" / overlay / f"{name}.yaml"))
        template = manifest["spec"]["template"]
        found.append(Pods(f"work pool {name}", template["metadata"]["labels"], template["spec"]))
    (job,) = yaml.safe_load_all((INFRA / "run.yaml").read_text())
    template = job["spec"]["template"]
    return [*found, Pods("run.yaml", template["metadata"]["labels"], template["spec"])]


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> str:
    return request.param


def test_every_object_fits_its_schema(overlay: str):
    kinds = {item["kind"] for item in rendered(overlay)}
    assert {"Deployment", "StatefulSet", "NetworkPolicy", "ResourceQuota", "Role"} <= kinds
    (job,) = yaml.safe_load_all((INFRA / "run.yaml").read_text())
    for item in (*rendered(overlay), job):
        kubernetes_validate.validate(item, VERSION, strict=True)
        if item["kind"] != "Namespace":
            assert item["metadata"]["namespace"] == "genenv", checks.name_of(item)


def test_the_checks_beyond_the_schemas_find_nothing(overlay: str):
    items, others = rendered(overlay), pods(overlay)
    every = [*checks.pods_of(items), *others]
    assert len(every) == 9
    assert checks.selectors(items, others) == []
    assert checks.references(items, others, SECRETS) == []
    assert checks.restricted(every) == []
    assert checks.cared_for(every) == []
    assert checks.values(items) == []
    assert checks.rights(items) == []
    assert checks.quota(items, others) == []


def test_workers_are_watched_where_their_role_reaches(overlay: str):
    for item in rendered(overlay):
        if item["kind"] == "Deployment" and item["metadata"]["name"].startswith("worker-"):
            env = item["spec"]["template"]["spec"]["containers"][0]["env"]
            values = {variable["name"]: variable.get("value") for variable in env}
            assert values["PREFECT_INTEGRATIONS_KUBERNETES_OBSERVER_NAMESPACES"] == "genenv"


def test_flows_may_look_at_the_secrets_that_pods_name(overlay: str):
    (role,) = [
        item
        for item in rendered(overlay)
        if item["kind"] == "Role" and item["metadata"]["name"] == "genenv-flow"
    ]
    (rule,) = [rule for rule in role["rules"] if "secrets" in rule["resources"]]
    from tasks.placement.pods import secrets_in

    needed = {name for pod in pods(overlay) for name in secrets_in(pod.spec)}
    assert needed <= set(rule["resourceNames"]) and rule["verbs"] == ["get"]


def test_flows_log_to_the_service_of_mlflow(overlay: str):
    (service,) = [
        item
        for item in rendered(overlay)
        if item["kind"] == "Service" and item["metadata"]["name"] == "mlflow"
    ]
    (port,) = service["spec"]["ports"]
    (job,) = yaml.safe_load_all((INFRA / "run.yaml").read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    address = f"http://mlflow:{port['port']}"
    assert {"name": "MLFLOW_TRACKING_URI", "value": address} in container["env"]
    assert not [argument for argument in container["args"] if "tracking" in argument]
    flows = read_settings(INFRA / "overlays" / overlay / "flows.yaml")
    assert flows.env["MLFLOW_TRACKING_URI"] == address


def test_namespace_and_network_are_closed(overlay: str):
    (space,) = [item for item in rendered(overlay) if item["kind"] == "Namespace"]
    assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    policies = {
        i["metadata"]["name"]: i["spec"]
        for i in rendered(overlay)
        if "podSelector" in i.get("spec", {})
    }
    assert policies["default-deny"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    # Whoever may come in is let out by its own policy, on the same port.
    for source, target, port in (
        ("worker", "prefect-server", 4200),
        ("stage", "prefect-server", 4200),
        ("stage", "mlflow", 5000),
        ("stage", "vllm", 8000),
        ("mlflow", "postgres", 5432),
        ("prefect-server", "postgres", 5432),
    ):
        labels = {
            "stage": {"app.kubernetes.io/component": "stage"},
        }.get(source, {"app.kubernetes.io/name": source})
        goal = {"app.kubernetes.io/name": target}
        assert _passes(policies, "egress", "to", labels, goal, port), (source, target)
        assert _passes(policies, "ingress", "from", goal, labels, port), (source, target)
    stranger = {"app.kubernetes.io/name": "stranger"}
    goal = {"app.kubernetes.io/name": "postgres"}
    assert not _passes(policies, "ingress", "from", goal, stranger, 5432)


def _passes(policies: dict[str, Any], way: str, peer: str, own: Any, other: Any, port: int) -> bool:
    return any(
        any(
            checks.matches(p.get("podSelector", {"matchLabels": {"no": "one"}}), other)
            for p in rule.get(peer, [])
        )
        and any(allowed["port"] == port for allowed in rule["ports"])
        for policy in policies.values()
        if checks.matches(policy["podSelector"], own)
        for rule in policy.get(way, [])
    )


def at(path: str, value: Any) -> Callable[[list[Object]], None]:
    """Return a function that sets the value at `Kind name/field/0/...`; None removes it."""

    def change(items: list[Object]) -> None:
        who, *fields = path.split("/")
        (here,) = [item for item in items if checks.name_of(item) == who]
        *way, last = [int(field) if field.isdigit() else field for field in fields]
        for field in way:
            here = here[field]
        if value is None:
            del here[last]
        else:
            here[last] = value

    return change


POD = "Deployment mlflow/spec/template/spec"
BOX = f"{POD}/containers/0"
BROKEN = [
    ("selectors", at("Deployment mlflow/spec/template/metadata/labels", {}), "its own pods"),
    ("selectors", at("Service mlflow/spec/selector", {"a": "b"}), "selects the pods of []"),
    ("selectors", at("Service mlflow/spec/ports/0/targetPort", "web"), "no port 'web'"),
    ("selectors", at("PodDisruptionBudget vllm/spec/selector/matchLabels", {"a": "b"}), "nothing"),
    ("references", at(f"{POD}/serviceAccountName", "nobody"), "ServiceAccount 'nobody'"),
    ("references", at(f"{POD}/volumes/1/name", "temp"), "no volume 'tmp'"),
    ("references", at(f"{BOX}/env/0/valueFrom/secretKeyRef/name", "x"), "Secret 'x'"),
    ("references", at(f"{BOX}/readinessProbe/httpGet/port", "web"), "readinessProbe names no port"),
    ("references", at("RoleBinding genenv-flow/roleRef/name", "x"), "binds what is not there"),
    ("restricted", at(f"{POD}/securityContext/runAsUser", None), "may run as root"),
    ("restricted", at(f"{POD}/securityContext/seccompProfile", None), "no seccomp"),
    ("restricted", at(f"{BOX}/securityContext/readOnlyRootFilesystem", False), "can write"),
    ("restricted", at(f"{BOX}/securityContext/capabilities", {}), "keeps capabilities"),
    ("restricted", at(f"{POD}/volumes/0", {"name": "data", "hostPath": {"path": "/"}}), "mounts /"),
    ("cared_for", at(f"{BOX}/livenessProbe", None), "no livenessProbe"),
    ("cared_for", at(f"{BOX}/resources/requests/cpu", None), "requests no cpu"),
    ("cared_for", at(f"{BOX}/image", "genenv:latest"), "whatever is newest"),
    ("values", at(f"{BOX}/resources/limits/memory", "2gb"), "'2gb' is no quantity"),
    ("values", at(f"{BOX}/resources/limits/memory", "1Mi"), "more memory than its limit"),
    ("values", at("PersistentVolumeClaim genenv-data/spec/accessModes", ["Many"]), "'Many'"),
    ("values", at("Role genenv-worker/rules/0/verbs", ["make"]), "'make' is no verb"),
    ("rights", at("Role genenv-worker/rules/0/resources", ["*"]), "grants everything"),
    ("rights", at("Role genenv-flow/rules/2/resourceNames", None), "reads every secret"),
    ("rights", at("Role genenv-flow/kind", "ClusterRole"), "beyond the namespace"),
    ("quota", at("ResourceQuota genenv/spec/hard/requests.memory", "1Gi"), "of requests.memory"),
]


@pytest.mark.parametrize(("check", "change", "finding"), BROKEN)
def test_each_check_finds_what_it_is_for(check: str, change: Any, finding: str):
    items = copy.deepcopy(rendered("cluster"))
    change(items)
    others = pods("cluster")
    found = {
        "selectors": lambda: checks.selectors(items, others),
        "references": lambda: checks.references(items, others, SECRETS),
        "restricted": lambda: checks.restricted(checks.pods_of(items)),
        "cared_for": lambda: checks.cared_for(checks.pods_of(items)),
        "values": lambda: checks.values(items),
        "rights": lambda: checks.rights(items),
        "quota": lambda: checks.quota(items, others),
    }[check]()
    assert any(finding in line for line in found), found
