"""The settings of a Kubernetes work pool's pods, and the Prefect template made from them.

Pure functions of the settings, so tests need no cluster. The pods meet the pod security level
`restricted`: no root, a read-only root file system, no capabilities, no privilege escalation.
The settings name secrets and never hold them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from genenv_core.config.load import explain
from genenv_core.errors import ConfigError, one_line
from genenv_core.machine.wrong_values import worded
from genenv_core.record import Record

QUANTITY = worded(
    r"^[1-9][0-9]*(m|k|M|G|T|Ki|Mi|Gi|Ti)?$",
    "a whole number with one of m, k, M, G, T, Ki, Mi, Gi, Ti or no unit, as in 8Gi",
)
NAME = worded(
    r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$",
    "a name of Kubernetes: small letters, digits, dots and hyphens, with a letter or digit at "
    "both ends",
)
IMAGE = worded(
    r"^[a-z0-9][\w./:-]*(:[\w.-]+|@sha256:[0-9a-f]{64})$",
    "an image with a tag or a digest, as in registry.example.com/genenv:1.0",
)
RESOURCE = worded(r"^[a-z0-9.-]+/[a-zA-Z0-9._-]+$", "a vendor and a name, as in nvidia.com/gpu")
API_URL = worded(r"^https?://\S+/api$", "the address of an API, as in http://HOST:4200/api")

Quantity = Annotated[str, Field(pattern=QUANTITY)]
Name = Annotated[str, Field(pattern=NAME)]

DATA, MODELS, TEMPORARY = "/data", "/models", "/tmp"
"""Where pods find the root of the runs, the model cache, and room that lasts as long as the pod."""


class _Settings(Record, use_attribute_docstrings=True):
    """What the settings here share."""


class Toleration(_Settings):
    """One taint that the pods tolerate."""

    key: str = Field(min_length=1)
    """Key of the taint."""
    operator: Literal["Exists", "Equal"] = "Exists"
    """Whether the value counts."""
    value: str | None = None
    """Value of the taint, for Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = "NoSchedule"
    """Effect of the taint; null: any."""

    @model_validator(mode="after")
    def _value(self) -> Self:
        if (self.operator == "Equal") != (self.value is not None):
            raise ValueError("tolerations: operator Equal needs a value, and Exists takes none")
        return self


class PodSettings(_Settings):
    """The pods of one work pool."""

    image: str = Field(pattern=IMAGE)
    """Container image with its tag or digest."""
    namespace: Name = "genenv"
    """Namespace of the pods."""
    service_account: Name = "genenv-stage"
    """Service account of the pods."""
    asks_cluster: bool = False
    """Whether the pods get the account's token. Flows need it to look after the pods of their
    stages; stages do not."""
    gpus: int = Field(default=0, ge=0, le=64)
    """GPUs of a pod."""
    gpu_resource: str = Field(default="nvidia.com/gpu", pattern=RESOURCE)
    """Name of the GPU resource on the nodes."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that a node must have."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints that the pods tolerate, besides that of the GPU resource."""
    cpu: Quantity = "2"
    """CPU requested. There is no limit, so a pod may use idle cores."""
    memory: Quantity = "8Gi"
    """Memory, requested and limit."""
    shared_memory: Quantity = "1Gi"
    """Size of /dev/shm, which the workers of data loaders and NCCL use; part of the memory."""
    temporary: Quantity = "20Gi"
    """Room in /tmp for checkpoints that are being written; requested as ephemeral storage."""
    data_claim: Name = "genenv-data"
    """Volume claim with the root of the runs, mounted at /data."""
    models_claim: Name | None = "genenv-models"
    """Volume claim with the cache of the Hugging Face hub, mounted at /models."""
    secrets: tuple[Name, ...] = ()
    """Secrets whose keys become environment variables, such as HF_TOKEN."""
    pull_secret: Name | None = None
    """Secret for the image registry."""
    priority_class: Name | None = None
    """Priority class of the pods."""
    user: int = Field(default=10001, ge=1, le=2**31)
    """User and group of the processes and of the files that they write."""
    grace_seconds: int = Field(default=60, ge=5, le=3600)
    """Time from SIGTERM to SIGKILL: an update reaches the end of its step in it."""
    keep_seconds: int = Field(default=3600, ge=60, le=604_800)
    """How long ended jobs are kept, so that people can look at them."""
    api_url: str = Field(default="http://prefect-server:4200/api", pattern=API_URL)
    """The Prefect API as pods reach it."""
    env: dict[str, str] = Field(default_factory=dict)
    """More environment variables. Every job shows them, so they must hold no secrets."""

    @model_validator(mode="after")
    def _no_latest(self) -> Self:
        if self.image.endswith(":latest"):
            raise ValueError(f"image {self.image!r}: name a version or a digest, not latest")
        return self


def read_settings(path: Path) -> PodSettings:
    """Return the settings in a YAML file; raises ConfigError that names the field."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        return PodSettings.model_validate(values)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read: {one_line(error)}") from error
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, PodSettings)}") from error


def job_template(settings: PodSettings) -> dict[str, Any]:
    """Return the base job template of the work pool, as Prefect takes it."""
    return {
        "job_configuration": {
            "name": "{{ name }}",
            "command": "{{ command }}",
            "env": "{{ env }}",
            "labels": "{{ labels }}",
            "annotations": "{{ annotations }}",
            "namespace": "{{ namespace }}",
            "job_watch_timeout_seconds": None,
            "pod_watch_timeout_seconds": 600,
            "stream_output": False,
            "job_manifest": job_manifest(settings),
        },
        "variables": {
            "type": "object",
            "description": "`genenv work-pool` made it: change its settings file and run it again.",
            "properties": {
                "name": {"type": "string", "title": "Name", "default": "genenv"},
                "command": {"type": "string", "title": "Command"},
                "namespace": {
                    "type": "string",
                    "title": "Namespace",
                    "default": settings.namespace,
                },
                "image": {"type": "string", "title": "Image", "default": settings.image},
                "env": _mapping("Environment Variables", environment(settings)),
                "labels": _mapping("Labels", {}),
                "annotations": _mapping("Annotations", {}),
            },
        },
    }


def _mapping(title: str, default: dict[str, str]) -> dict[str, Any]:
    """Return the schema of a variable that maps names to texts."""
    texts = {"type": "string"}
    return {"type": "object", "title": title, "additionalProperties": texts, "default": default}


def environment(settings: PodSettings) -> dict[str, str]:
    """Return the plain environment variables of the pods."""
    return {
        # The worker copies its own Prefect settings into the pods; the pods need these two.
        "PREFECT_API_URL": settings.api_url,
        "PREFECT_HOME": f"{TEMPORARY}/prefect",
        "PREFECT_LOGGING_EXTRA_LOGGERS": "genenv",
        # The automation of infra/automations.yaml marks a flow run without heartbeats as Crashed.
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "GENENV_ROOT": DATA,
        "HOME": f"{TEMPORARY}/home",
        **({"HF_HOME": MODELS} if settings.models_claim else {}),
        **settings.env,
    }


def job_manifest(settings: PodSettings) -> dict[str, Any]:
    """Return the Kubernetes job of one flow run, with Prefect's placeholders."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "generateName": "{{ name }}-",
            "namespace": "{{ namespace }}",
            "labels": "{{ labels }}",
            "annotations": "{{ annotations }}",
        },
        "spec": {
            # Prefect, not Kubernetes, starts an evicted flow run again.
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": settings.keep_seconds,
            "template": {
                "metadata": {"labels": {"app.kubernetes.io/component": "stage"}},
                "spec": pod_spec(settings),
            },
        },
    }


def pod_spec(settings: PodSettings) -> dict[str, Any]:
    """Return the pod of one flow run."""
    spec: dict[str, Any] = {
        # Both belong to the job. Prefect refuses a template that does not have them here, and the
        # API server drops them.
        "parallelism": 1,
        "completions": 1,
        "restartPolicy": "Never",
        "serviceAccountName": settings.service_account,
        "automountServiceAccountToken": settings.asks_cluster,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": settings.grace_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": settings.user,
            "runAsGroup": settings.user,
            "fsGroup": settings.user,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(settings)],
        "volumes": _volumes(settings),
    }
    tolerations = [toleration.model_dump(exclude_none=True) for toleration in settings.tolerations]
    if settings.gpus:
        # The taint that clusters put on GPU nodes to keep everything else away.
        tolerations.append({"key": settings.gpu_resource, "operator": "Exists"})
    optional: dict[str, Any] = {
        "nodeSelector": dict(settings.node_selector),
        "tolerations": tolerations,
        "priorityClassName": settings.priority_class,
        "imagePullSecrets": [{"name": settings.pull_secret}] if settings.pull_secret else [],
    }
    return spec | {name: value for name, value in optional.items() if value}


def _container(settings: PodSettings) -> dict[str, Any]:
    gpu = {settings.gpu_resource: str(settings.gpus)} if settings.gpus else {}
    room = {"memory": settings.memory, "ephemeral-storage": settings.temporary}
    return {
        "name": "prefect-job",
        "image": "{{ image }}",
        "imagePullPolicy": "IfNotPresent",
        "args": "{{ command }}",
        "env": "{{ env }}",
        "envFrom": [{"secretRef": {"name": name}} for name in settings.secrets],
        "resources": {
            "requests": {"cpu": settings.cpu, **room, **gpu},
            "limits": {**room, **gpu},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "data", "mountPath": DATA},
            {"name": "tmp", "mountPath": TEMPORARY},
            {"name": "shm", "mountPath": "/dev/shm"},
            *([{"name": "models", "mountPath": MODELS}] if settings.models_claim else []),
        ],
    }


def _volumes(settings: PodSettings) -> list[dict[str, Any]]:
    claims = {"data": settings.data_claim, "models": settings.models_claim}
    shm = {"medium": "Memory", "sizeLimit": settings.shared_memory}
    return [
        *(
            {"name": name, "persistentVolumeClaim": {"claimName": claim}}
            for name, claim in claims.items()
            if claim
        ),
        {"name": "tmp", "emptyDir": {"sizeLimit": settings.temporary}},
        {"name": "shm", "emptyDir": shm},
    ]
