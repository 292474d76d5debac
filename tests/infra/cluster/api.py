"""The HTTP side: routes, rights of tokens, admission, watches."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import kubernetes_validate
from aiohttp import web

from tests.infra import checks
from tests.infra.checks import Pods
from tests.infra.cluster.store import Gone, Object, Refused, Store, selected

VERSION = "1.32"
CORE = ("pods", "secrets", "events", "namespaces")
KINDS = {"jobs": "Job", "pods": "Pod", "secrets": "Secret", "events": "Event"}

Rules = list[dict[str, Any]]


class Api:
    """The API server of one namespace; `rights` are the rules of each bearer token."""

    def __init__(self, store: Store, namespace: str, rights: Mapping[str, Rules]) -> None:
        self.store, self.namespace, self.rights = store, namespace, rights
        self.away = False
        self.missed: Counter[str] = Counter()
        """How many requests of each `Bearer TOKEN METHOD` came while the API was away."""
        self.refused: list[str] = []
        """Requests that a token had no right to."""
        self.logs: dict[str, Any] = {}
        self._watching: set[asyncio.Task[Any]] = set()

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(middlewares=[self._errors])
        app.router.add_get("/version", self._version)
        app.router.add_get("/api", self._versions)
        app.router.add_get("/apis", self._groups)
        app.router.add_get("/api/v1", self._resources)
        app.router.add_get("/apis/batch/v1", self._resources)
        for prefix in ("/api/v1", "/apis/batch/v1"):
            base = f"{prefix}/namespaces/{{namespace}}/{{resource}}"
            app.router.add_get(base, self._list)
            app.router.add_post(base, self._create)
            app.router.add_get(f"{base}/{{name}}", self._get)
            app.router.add_delete(f"{base}/{{name}}", self._delete)
            app.router.add_get(f"{base}/{{name}}/log", self._log)
        return app

    def cut(self) -> None:
        """End every watch, as a restarted API server does."""
        for task in self._watching:
            task.cancel()

    @web.middleware
    async def _errors(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.away:
            self.missed[f"{request.headers.get('Authorization')} {request.method}"] += 1
            if request.transport:
                request.transport.abort()
            raise ConnectionResetError
        try:
            return await handler(request)
        except Refused as refused:
            return web.json_response(
                {
                    "kind": "Status",
                    "apiVersion": "v1",
                    "status": "Failure",
                    "code": refused.status,
                    "reason": refused.reason,
                    "message": refused.message,
                },
                status=refused.status,
                reason=refused.reason,
            )

    def _may(self, request: web.Request, verb: str, sub: str = "") -> tuple[str, str]:
        """Return namespace and resource; raises Refused without the right to them."""
        namespace, resource = request.match_info["namespace"], request.match_info["resource"]
        group = "batch" if "/apis/batch/" in request.path else ""
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        what = resource + sub
        for rule in self.rights.get(token, []) if namespace == self.namespace else []:
            names = rule.get("resourceNames")
            if (
                group in rule["apiGroups"]
                and what in rule["resources"]
                and verb in rule["verbs"]
                and (names is None or request.match_info.get("name") in names)
            ):
                return namespace, resource
        self.refused.append(f"{token} {verb} {namespace} {group}/{what}")
        raise Refused(403, "Forbidden", f"{token or 'nobody'} cannot {verb} {what} in {namespace}")

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"major": "1", "minor": "32", "gitVersion": "v1.32.0"})

    async def _versions(self, request: web.Request) -> web.Response:
        return web.json_response({"kind": "APIVersions", "versions": ["v1"]})

    async def _groups(self, request: web.Request) -> web.Response:
        version = {"groupVersion": "batch/v1", "version": "v1"}
        group = {"name": "batch", "versions": [version], "preferredVersion": version}
        return web.json_response({"kind": "APIGroupList", "groups": [group]})

    async def _resources(self, request: web.Request) -> web.Response:
        batch = "batch" in request.path
        names = ("jobs",) if batch else CORE
        verbs = ["create", "delete", "get", "list", "watch"]
        found = [
            {
                "name": name,
                "singularName": name[:-1],
                "namespaced": name != "namespaces",
                "kind": KINDS.get(name, "Namespace"),
                "verbs": verbs,
            }
            for name in names
        ]
        version = "batch/v1" if batch else "v1"
        return web.json_response(
            {"kind": "APIResourceList", "groupVersion": version, "resources": found}
        )

    async def _list(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") in ("true", "True", "1"):
            return await self._watch(request)
        namespace, resource = self._may(request, "list")
        items = self.store.list(resource, namespace, request.query.get("labelSelector", ""))
        for term in filter(None, request.query.get("fieldSelector", "").split(",")):
            path, _, value = term.partition("=")
            items = [item for item in items if _field(item, path) == value]
        return web.json_response(
            {
                "kind": f"{KINDS[resource]}List",
                "apiVersion": "batch/v1" if resource == "jobs" else "v1",
                "metadata": {"resourceVersion": str(self.store.version)},
                "items": items,
            }
        )

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        namespace, resource = self._may(request, "watch")
        since = int(request.query.get("resourceVersion") or self.store.version)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        seconds = float(request.query.get("timeoutSeconds") or 3600)
        task = asyncio.current_task()
        assert task
        self._watching.add(task)
        try:
            async with asyncio.timeout(seconds):
                async for change in self.store.watch(resource, namespace, since):
                    if selected(change.item, request.query.get("labelSelector", "")):
                        await _send(response, change.kind, change.item)
        except Gone:
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            await _send(response, "ERROR", status)
        except (TimeoutError, asyncio.CancelledError, ConnectionResetError):
            pass
        finally:
            self._watching.discard(task)
        return response

    async def _get(self, request: web.Request) -> web.Response:
        namespace, resource = self._may(request, "get")
        item = self.store.get(resource, namespace, request.match_info["name"])
        if "PartialObjectMetadata" in request.headers.get("Accept", ""):
            item = {"kind": "PartialObjectMetadata", "metadata": item["metadata"]}
        return web.json_response(item)

    async def _create(self, request: web.Request) -> web.Response:
        namespace, resource = self._may(request, "create")
        item = await request.json()
        await asyncio.to_thread(admit, item)
        return web.json_response(await self.store.create(resource, namespace, item), status=201)

    async def _delete(self, request: web.Request) -> web.Response:
        namespace, resource = self._may(request, "delete")
        item = self.store.get(resource, namespace, request.match_info["name"])
        options = await request.json() if request.can_read_body else {}
        grace = request.query.get("gracePeriodSeconds", options.get("gracePeriodSeconds"))
        item["metadata"]["deletionTimestamp"] = "now"
        item["metadata"]["deletionGracePeriodSeconds"] = int(30 if grace is None else grace)
        await self.store.update(resource, item)
        return web.json_response({"kind": "Status", "status": "Success"})

    async def _log(self, request: web.Request) -> web.Response:
        namespace, _ = self._may(request, "get", "/log")
        self.store.get("pods", namespace, request.match_info["name"])
        path = self.logs.get(request.match_info["name"])
        text = path.read_text(errors="replace") if path else ""
        lines = int(request.query.get("tailLines", len(text) + 1))
        ends = text.splitlines(keepends=True)[-lines:] if lines else []
        most = int(request.query.get("limitBytes", len(text.encode()) + 1))
        return web.Response(body="".join(ends).encode()[:most])


def admit(job: Object) -> None:
    """Check a new job as the API server does: schema, pod security and names."""
    spec = job["spec"]["template"]["spec"]
    for misplaced in ("parallelism", "completions"):  # unknown to a pod: dropped
        spec.pop(misplaced, None)
    try:
        kubernetes_validate.validate(job, VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        where = ".".join(map(str, error.path))
        raise Refused(422, "Invalid", f"{where}: {error.message}") from error
    template = job["spec"]["template"]
    pods = Pods("pod", template.get("metadata", {}).get("labels", {}), spec)
    found = [*checks.restricted([pods]), *checks.values([job])]
    if found:
        raise Refused(403, "Forbidden", f"violates PodSecurity restricted: {'; '.join(found)}")


async def _send(response: web.StreamResponse, kind: str, item: Object) -> None:
    await response.write(json.dumps({"type": kind, "object": item}).encode() + b"\n")


def _field(item: Object, path: str) -> str:
    value: Any = item
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return str(value)
