"""Finds why a stage's pod is in trouble, and says it in words that a person understands.

Prefect says only that a pod is pending or has crashed; the pod's status says why. Requests go to
the cluster's API with the pod's own service account or the local kubeconfig. If neither may ask,
the error has Prefect's message alone.
"""

# prefect_kubernetes and kubernetes_asyncio have no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from prefect.client.schemas.objects import WorkPool

from genenv_core.errors import one_line
from genenv_core.hiding import words_without_secrets

log = logging.getLogger("genenv.stage")

TIMEOUT_S = 10.0

JSON, PLAIN = "application/json", "text/plain"

NO_CONTENT = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v1"
"""The Accept header for a secret: the answer says whether it exists, never its content."""

NEVER_STARTS = ("CreateContainerConfigError", "CreateContainerError", "InvalidImageName")
"""Reasons of a waiting container that only a person can resolve, beside a failed image pull."""


LAST_LINES = 5
"""Lines of a dead pod's log that its error repeats."""

LAST_LETTERS = 600
"""Last characters of these lines that the error repeats."""

_READ_LINES, _READ_BYTES = 200, 65_536  # of the end of a log; a traceback is longer than LAST_LINES


@dataclass(frozen=True, slots=True)
class PodLook:
    """What one look at a flow run's newest pod shows.

    `runs` says whether one of its containers runs, `trouble` what is wrong, or '', `hopeless`
    whether only a person can help. `pod` and `container` name the container that ended badly, or
    ''; `message` is its termination message, or ''.
    """

    runs: bool = False
    trouble: str = ""
    hopeless: bool = False
    pod: str = ""
    container: str = ""
    message: str = ""


class Pods:
    """The pods of one work pool of the type kubernetes."""

    def __init__(self, namespace: str, secrets: frozenset[str]) -> None:
        """Ask about this namespace, whose pods refer to these `secrets`."""
        self.namespace = namespace
        self._secrets = secrets
        self._mute = False

    def missing_secrets(self) -> list[str]:
        """Return the secrets that the pods need and the namespace lacks, each in words."""
        paths = {name: f"{self._path}/secrets/{name}" for name in sorted(self._secrets)}
        found = {name: self._get(path, accept=NO_CONTENT) for name, path in paths.items()}
        absent = [name for name, answer in found.items() if answer is _ABSENT]
        return [f"secret {name!r} in namespace {self.namespace}" for name in absent]

    def look(self, flow_run: UUID) -> PodLook:
        """Return the state of a flow run's newest pod by one listing, else that of its job."""
        pods = self._items(f"{self._path}/pods", labelSelector=_label(flow_run))
        if pods:
            return seen(max(pods, key=lambda pod: pod["metadata"]["creationTimestamp"]))
        path = f"/apis/batch/v1/namespaces/{self.namespace}/jobs"
        for job in self._items(path, labelSelector=_label(flow_run)):
            about = f"involvedObject.name={job['metadata']['name']},type=Warning"
            for event in self._items(f"{self._path}/events", fieldSelector=about):
                return PodLook(trouble=f"{event.get('reason')}: {_short(event.get('message'))}")
        return PodLook()

    def last_words(self, look: PodLook) -> str:
        """Return the last words of a dead container on one line, or '' where they are unknown.

        These are its termination message, else the last lines of its log. It hides what looks like
        a secret.
        """
        said: Any = look.message
        if not said and look.pod:
            path = f"{self._path}/pods/{look.pod}/log"
            lines, most = str(_READ_LINES), str(_READ_BYTES)
            said = self._get(
                path, accept=PLAIN, container=look.container, tailLines=lines, limitBytes=most
            )
        if not isinstance(said, str):
            return ""
        ends = [one_line(line) for line in words_without_secrets(said).splitlines() if line.strip()]
        return " | ".join(ends[-LAST_LINES:])[-LAST_LETTERS:]

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"

    def _items(self, path: str, **query: str) -> list[dict[str, Any]]:
        answer = self._get(path, JSON, **query)
        return cast(dict[str, Any], answer).get("items") or [] if isinstance(answer, dict) else []

    def _get(self, path: str, accept: str, **query: str) -> Any:
        """Return the answer, `_ABSENT` without such an object, None if the request fails."""
        from aiohttp import ClientError
        from kubernetes_asyncio.client.exceptions import ApiException
        from kubernetes_asyncio.config import ConfigException

        try:
            return asyncio.run(asyncio.wait_for(_request(path, accept, query), TIMEOUT_S))
        except ApiException as error:
            if error.status == 404:
                return _ABSENT
            why = f"{error.status} {error.reason}"
        except (ConfigException, ClientError, OSError, TimeoutError, ValueError) as error:
            why = f"{type(error).__name__}: {error}"
        if not self._mute:
            log.warning("namespace=%s cannot be asked about pods: %s", self.namespace, _short(why))
        self._mute = True
        return None


_ABSENT = object()


def _label(flow_run: UUID) -> str:
    return f"prefect.io/flow-run-id={flow_run}"


def pods_of(work_pool: WorkPool) -> Pods | None:
    """Return the pods of a work pool, None for a work pool without pods."""
    if work_pool.type != "kubernetes":
        return None
    template = work_pool.base_job_template
    defaults = {
        name: field.get("default")
        for name, field in template.get("variables", {}).get("properties", {}).items()
    }
    manifest = template["job_configuration"]["job_manifest"]
    return Pods(str(defaults.get("namespace") or "default"), frozenset(secrets_in(manifest)))


def secrets_in(manifest: Any) -> Iterator[str]:
    """Yield the names of all secrets that a manifest refers to, without optional ones."""
    if isinstance(manifest, list):
        for item in cast(list[Any], manifest):
            yield from secrets_in(item)
        return
    if not isinstance(manifest, dict):
        return
    for field, value in cast(dict[str, Any], manifest).items():
        if field in ("secretRef", "secretKeyRef") and not value.get("optional"):
            yield value["name"]
        elif field == "secret" and isinstance(value, dict) and "secretName" in value:
            yield value["secretName"]
        elif field == "imagePullSecrets":
            yield from (item["name"] for item in cast(list[dict[str, Any]], value))
        else:
            yield from secrets_in(value)


def seen(pod: dict[str, Any]) -> PodLook:
    """Return what the listing of a pod shows."""
    status: dict[str, Any] = pod.get("status") or {}
    runs = any("running" in (one.get("state") or {}) for one in _containers(status))
    trouble, hopeless = diagnosis(status) or ("", False)
    for container in _containers(status):
        ended = _inner(container, "state", "terminated") or _inner(
            container, "lastState", "terminated"
        )
        if ended.get("exitCode"):
            name, message = pod["metadata"].get("name", ""), ended.get("message") or ""
            return PodLook(runs, trouble, hopeless, name, container.get("name", ""), message)
    return PodLook(runs, trouble, hopeless)


def diagnosis(status: dict[str, Any]) -> tuple[str, bool] | None:
    """Return what is wrong according to a pod's status, and whether only a person can help."""
    from prefect_kubernetes.diagnostics import DiagnosisCategory, diagnose_k8s_pod

    for container in _containers(status):
        waiting = _inner(container, "state", "waiting")
        if waiting.get("reason") in NEVER_STARTS:
            return f"{waiting['reason']}: {_short(waiting.get('message'))}", True
    known = diagnose_k8s_pod(status)
    if known is not None:
        text = f"{_short(known.summary)}: {_short(known.detail)} {_short(known.resolution)}"
        return text, known.category is DiagnosisCategory.IMAGE_PULL_ERROR
    for container in _containers(status):
        ended = _inner(container, "state", "terminated")
        if ended.get("exitCode"):
            reason = ended.get("reason") or "Error"
            return f"its container ended with status {ended['exitCode']} ({reason})", False
    if status.get("phase") == "Failed":
        return f"{status.get('reason') or 'Failed'}: {_short(status.get('message'))}", False
    return None


def _inner(value: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return a mapping inside others, {} where it is missing."""
    for name in names:
        value = value.get(name) or {}
    return value


def _containers(status: dict[str, Any]) -> list[dict[str, Any]]:
    return [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]


def _short(text: Any) -> str:
    return one_line(text or "no message", 300)


async def _request(path: str, accept: str, query: dict[str, str]) -> Any:
    from kubernetes_asyncio import config
    from kubernetes_asyncio.client import ApiClient

    try:
        config.load_incluster_config()
        client = ApiClient()
    except config.ConfigException:
        # The package's own default is the variable's value at its import.
        client = await config.new_client_from_config(os.environ.get("KUBECONFIG"))
    async with client:
        answer = await client.call_api(
            path,
            "GET",
            query_params=list(query.items()),
            header_params={"Accept": accept},
            auth_settings=["BearerToken"],
            _preload_content=False,
            _return_http_data_only=True,
        )
        body = await answer.read()
        if answer.status >= 400:
            from kubernetes_asyncio.client.exceptions import ApiException

            raise ApiException(status=answer.status, reason=answer.reason)
        return json.loads(body) if accept != PLAIN else body.decode(errors="replace")
