"""The pods of a work pool, from settings to the job that Prefect would create.

Invariants: the rendered job fits the Kubernetes schema; GPUs, selectors, tolerations, shared
memory, caches and secrets come out as set; Prefect accepts the template and keeps its own labels
and environment; no secret's value is in it; a wrong setting is refused by name.
"""

from __future__ import annotations

import copy
import uuid
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from prefect.client.schemas.objects import FlowRun
from prefect.utilities.templating import apply_values
from prefect_kubernetes.worker import KubernetesWorkerJobConfiguration

from flows.deploy.pod_settings import PodSettings, job_template, pod_spec, read_settings
from genenv_core.errors import ConfigError
from tasks.placement.pods import secrets_in
from tests.infra import checks
from tests.infra.checks import Pods

IMAGE = "registry.example.com/genenv-gpu:0.2.0"


def job(settings: PodSettings) -> dict[str, Any]:
    """Return the job that Prefect's worker makes from the settings for a flow run."""
    template = job_template(settings)
    variables = template["variables"]["properties"]
    values = {name: field["default"] for name, field in variables.items() if "default" in field}
    filled = apply_values(copy.deepcopy(template["job_configuration"]), values)
    configuration = KubernetesWorkerJobConfiguration.model_validate(filled)
    run = FlowRun(id=uuid.uuid4(), flow_id=uuid.uuid4(), name="rollout · epoch 1")
    configuration.prepare_for_flow_run(run)
    return configuration.job_manifest


def container(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest["spec"]["template"]["spec"]["containers"][0]


def test_the_job_fits_the_schema_and_the_level_restricted():
    manifest = job(PodSettings(image=IMAGE, gpus=2, secrets=("genenv-environment",)))
    spec = manifest["spec"]["template"]["spec"]
    pods = Pods("job", manifest["spec"]["template"]["metadata"]["labels"], spec)
    assert checks.restricted([pods]) == [] and checks.cared_for([pods]) == []
    # Prefect wants both in the pod, where the API server drops them; everything else is strict.
    assert (spec.pop("parallelism"), spec.pop("completions")) == (1, 1)
    kubernetes_validate.validate(manifest, "1.32", strict=True)
    assert checks.values([manifest]) == []


def test_a_gpu_pod_gets_what_it_was_set():
    settings = PodSettings(
        image=IMAGE,
        gpus=2,
        gpu_resource="amd.com/gpu",
        node_selector={"pool": "a100"},
        tolerations=({"key": "spot", "operator": "Equal", "value": "yes"},),  # type: ignore[arg-type]
        memory="64Gi",
        shared_memory="16Gi",
        secrets=("genenv-environment",),
        pull_secret="genenv-registry",
        priority_class="batch",
        env={"NCCL_DEBUG": "WARN"},
    )
    spec = pod_spec(settings)
    (box,) = spec["containers"]
    assert box["resources"]["limits"]["amd.com/gpu"] == "2"
    assert box["resources"]["requests"]["amd.com/gpu"] == "2"
    assert box["resources"]["limits"]["memory"] == box["resources"]["requests"]["memory"] == "64Gi"
    assert spec["nodeSelector"] == {"pool": "a100"}
    assert {"key": "amd.com/gpu", "operator": "Exists"} in spec["tolerations"]
    spot = {"key": "spot", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
    assert spot in spec["tolerations"]
    volumes = {volume.pop("name"): volume for volume in spec["volumes"]}
    assert volumes["shm"] == {"emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}
    assert volumes["models"] == {"persistentVolumeClaim": {"claimName": "genenv-models"}}
    mounts = {mount["mountPath"]: mount["name"] for mount in box["volumeMounts"]}
    assert mounts == {"/data": "data", "/models": "models", "/dev/shm": "shm", "/tmp": "tmp"}
    assert box["envFrom"] == [{"secretRef": {"name": "genenv-environment"}}]
    assert sorted(secrets_in(spec)) == ["genenv-environment", "genenv-registry"]
    assert spec["priorityClassName"] == "batch"
    assert spec["automountServiceAccountToken"] is False
    env = {item["name"]: item["value"] for item in container(job(settings))["env"]}
    assert env["NCCL_DEBUG"] == "WARN" and env["HF_HOME"] == "/models"
    assert env["PREFECT_API_URL"] == "http://prefect-server:4200/api"
    assert env["PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR"] == "reschedule"


def test_a_pod_without_a_gpu_asks_for_none_and_needs_no_cache():
    spec = pod_spec(PodSettings(image=IMAGE, models_claim=None))
    assert set(spec["containers"][0]["resources"]["limits"]) == {"memory", "ephemeral-storage"}
    assert "tolerations" not in spec and "nodeSelector" not in spec
    assert {volume["name"] for volume in spec["volumes"]} == {"data", "tmp", "shm"}


def test_equal_settings_make_equal_templates():
    settings = PodSettings(image=IMAGE, gpus=1)
    assert job_template(settings) == job_template(PodSettings(image=IMAGE, gpus=1))
    assert job_template(settings) != job_template(PodSettings(image=IMAGE, gpus=2))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"image": "genenv-gpu"}, ["image", "'genenv-gpu'"]),
        ({"image": "genenv-gpu:latest"}, ["latest", "digest"]),
        ({"image": IMAGE, "gpu": 1}, ["gpu is no field", "'gpus'"]),
        ({"image": IMAGE, "memory": "64GB"}, ["memory", "'64GB'"]),
        ({"image": IMAGE, "gpus": -1}, ["gpus", "-1"]),
        ({"image": IMAGE, "tolerations": [{"key": "a", "value": "b"}]}, ["Equal needs a value"]),
        ({}, ["image"]),
    ],
)
def test_a_wrong_setting_is_refused_by_name(tmp_path: Path, values: Any, words: list[str]):
    path = tmp_path / "gpu.yaml"
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(ConfigError) as caught:
        read_settings(path)
    for word in (str(path), *words):
        assert word in str(caught.value)
