"""The cluster: a thread with the API server, the job controller, the scheduler and the kubelets."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from aiohttp import web

from tests.infra.checks import amount
from tests.infra.cluster.api import Api, Rules
from tests.infra.cluster.kubelet import Kubelet
from tests.infra.cluster.store import Object, Store
from tests.waiting import BOUND_S

Answer = TypeVar("Answer")
TICK_S = 0.1


@dataclass(frozen=True)
class Node:
    """A node: what it has room for, its labels and its taints (key -> effect)."""

    name: str
    capacity: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    taints: Mapping[str, str] = field(default_factory=dict[str, str])


class Cluster:
    """A namespace on some nodes. Methods may be called from any thread."""

    def __init__(
        self, namespace: str, nodes: list[Node], rights: Mapping[str, Rules], folder: Path
    ) -> None:
        """Start the cluster; `rights` are the rules of each account, whose token is its name."""
        self.namespace, self.nodes, self.folder = namespace, nodes, folder
        self.images: set[str] = set()
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._rights = rights
        self._thread = threading.Thread(target=self._main, name="cluster", daemon=True)
        self._thread.start()
        assert self._started.wait(BOUND_S)

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        self._started.set()
        self._loop.run_until_complete(self._control())
        self._loop.close()

    async def _start(self) -> None:
        self.store = Store()
        self.api = Api(self.store, self.namespace, self._rights)
        self.kubelet = Kubelet(self.store, self.folder, self.images, self.api.logs)
        self._stopping = asyncio.Event()
        self._runner = web.AppRunner(self.api.app(), access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}"

    async def _control(self) -> None:
        while not self._stopping.is_set():
            await self._jobs()
            await self._deletions()
            await self._schedule()
            await self.kubelet.sync(self.namespace)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), TICK_S)
        await self.kubelet.close()
        self.api.cut()
        await self._runner.cleanup()

    async def _jobs(self) -> None:
        """Create the pods of each job, one after the other, as often as backoffLimit admits."""
        for job in self.store.list("jobs", self.namespace):
            status = job.setdefault("status", {})
            if "deletionTimestamp" in job["metadata"] or status.get("conditions"):
                continue
            pods = self._pods_of(job)
            ended = [pod for pod in pods if pod["status"]["phase"] in ("Succeeded", "Failed")]
            failed = sum(pod["status"]["phase"] == "Failed" for pod in ended)
            status["active"] = len(pods) - len(ended)
            if failed:
                status["failed"] = failed
            if len(ended) > failed:
                status["succeeded"] = 1
                status["conditions"] = [{"type": "Complete", "status": "True"}]
            elif failed > job["spec"].get("backoffLimit", 6):
                reason = {"reason": "BackoffLimitExceeded", "message": "too many failures"}
                status["conditions"] = [{"type": "Failed", "status": "True", **reason}]
            elif not status["active"]:
                await self._pod(job)
                status["active"] = 1
            await self.store.update("jobs", job)

    async def _pod(self, job: Object) -> None:
        template = copy.deepcopy(job["spec"]["template"])
        meta = template.setdefault("metadata", {})
        name = job["metadata"]["name"]
        meta["generateName"] = f"{name}-"
        meta.setdefault("labels", {})["job-name"] = name
        owner = {"kind": "Job", "name": name, "uid": job["metadata"]["uid"]}
        meta["ownerReferences"] = [owner]
        pod = {"apiVersion": "v1", "kind": "Pod", **template, "status": {"phase": "Pending"}}
        await self.store.create("pods", self.namespace, pod)

    async def _deletions(self) -> None:
        """Delete in the foreground: first the process, then its pod, then the job."""
        for job in self.store.list("jobs", self.namespace):
            if "deletionTimestamp" not in job["metadata"]:
                continue
            pods = self._pods_of(job)
            for pod in pods:
                if "deletionTimestamp" not in pod["metadata"]:
                    grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
                    pod["metadata"]["deletionTimestamp"] = "now"
                    pod["metadata"]["deletionGracePeriodSeconds"] = grace
                    await self.store.update("pods", pod)
            if not pods:
                await self.store.remove("jobs", job)
        for pod in self.store.list("pods", self.namespace):
            over = pod["status"]["phase"] in ("Succeeded", "Failed")
            if "deletionTimestamp" in pod["metadata"] and (over or "nodeName" not in pod["spec"]):
                await self.store.remove("pods", pod)

    def _pods_of(self, job: Object) -> list[Object]:
        return [
            pod
            for pod in self.store.list("pods", self.namespace)
            if pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
        ]

    async def _schedule(self) -> None:
        """Put each pod on the first node whose labels, taints and free room fit."""
        for pod in self.store.list("pods", self.namespace):
            if "nodeName" in pod["spec"] or "deletionTimestamp" in pod["metadata"]:
                continue
            why = self._unbound(pod)
            fitting: list[str] = []
            for node in self.nodes if not why else []:
                if trouble := self._misfit(pod, node):
                    why.append(trouble)
                else:
                    fitting.append(node.name)
            if fitting:
                pod["spec"]["nodeName"] = fitting[0]
                pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
            else:
                counts = ", ".join(f"{why.count(reason)} {reason}" for reason in dict.fromkeys(why))
                text = f"0/{len(self.nodes)} nodes are available: {counts}."
                condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                pod["status"]["conditions"] = [{**condition, "message": text}]
            await self.store.update("pods", pod)

    def _unbound(self, pod: Object) -> list[str]:
        for volume in pod["spec"].get("volumes", []):
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            place = ("persistentvolumeclaims", self.namespace, claim)
            if claim and place not in self.store.objects:
                return [f'persistentvolumeclaim "{claim}" not found']
        return []

    def _misfit(self, pod: Object, node: Node) -> str:
        """Return why a pod does not go to a node, in the scheduler's words."""
        for key, effect in node.taints.items():
            borne = any(
                toleration.get("key") == key and toleration.get("effect") in (None, effect)
                for toleration in pod["spec"].get("tolerations", [])
            )
            if effect != "PreferNoSchedule" and not borne:
                return f"node(s) had untolerated taint {{{key}: }}"
        for key, value in pod["spec"].get("nodeSelector", {}).items():
            if node.labels.get(key) != value:
                return "node(s) didn't match Pod's node affinity/selector"
        for resource, wanted in _requests(pod).items():
            taken = sum(
                _requests(other).get(resource, 0)
                for other in self.store.list("pods", self.namespace)
                if other["spec"].get("nodeName") == node.name
                and other["status"]["phase"] not in ("Succeeded", "Failed")
            )
            if taken + wanted > amount(node.capacity.get(resource, "0")):
                return f"Insufficient {resource}"
        return ""

    def call(self, make: Callable[[], Awaitable[Answer]]) -> Answer:
        """Run a coroutine in the cluster's thread and return its result."""

        async def run() -> Answer:
            return await make()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    def look(self, what: Callable[[], Answer]) -> Answer:
        """Call a function in the cluster's thread and return its result."""

        async def run() -> Answer:
            return what()

        return self.call(run)

    def put(self, resource: str, name: str, **content: Any) -> None:
        """Create an object, or replace the one of this name."""

        async def run() -> None:
            known = self.store.objects.get((resource, self.namespace, name))
            if known:
                await self.store.remove(resource, known)
            item = {"metadata": {"name": name}, **content}
            await self.store.create(resource, self.namespace, item)

        self.call(run)

    def drop(self, resource: str, name: str) -> None:
        """Remove an existing object."""
        item = self.look(lambda: self.store.get(resource, self.namespace, name))
        self.call(lambda: self.store.remove(resource, item))

    def pods(self, flow_run: Any = None) -> list[Object]:
        """Return all pods, or those of a flow run."""
        label = f"prefect.io/flow-run-id={flow_run}" if flow_run else ""
        return self.look(lambda: self.store.list("pods", self.namespace, label))

    def jobs(self, flow_run: Any) -> list[Object]:
        """Return the jobs of a flow run."""
        label = f"prefect.io/flow-run-id={flow_run}"
        return self.look(lambda: self.store.list("jobs", self.namespace, label))

    def log(self, pod: Object) -> str:
        """Return the output of a pod's process."""
        path = self.api.logs.get(pod["metadata"]["name"])
        return path.read_text(errors="replace") if path else ""

    def evict(self, pod: Object, why: str = "The node was low on resource: memory.") -> None:
        """Evict a running pod as a full node does: SIGTERM, then SIGKILL after its grace."""
        uid = pod["metadata"]["uid"]
        self.look(lambda: self.kubelet.evicting.__setitem__(uid, why))

    def leave(self, away: bool) -> None:
        """Make the API unreachable, watches included, or reachable again."""

        def switch() -> None:
            self.api.away = away
            if away:
                self.api.missed.clear()
                self.api.cut()

        self.look(switch)

    def compact(self) -> None:
        """Forget the history and end all watches, which get 410 when they start again."""

        def forget() -> None:
            self.store.compact()
            self.api.cut()

        self.look(forget)

    def kubeconfig(self, account: str) -> Path:
        """Return a kubeconfig with the token of a service account."""
        path = self.folder / f"kubeconfig-{account}"
        named = {"name": "double"}
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{**named, "cluster": {"server": self.url}}],
                    "users": [{**named, "user": {"token": account}}],
                    "contexts": [
                        {
                            **named,
                            "context": {
                                "cluster": "double",
                                "user": "double",
                                "namespace": self.namespace,
                            },
                        }
                    ],
                    "current-context": "double",
                }
            )
        )
        return path

    def close(self) -> None:
        """Stop the cluster and the processes of all pods."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(BOUND_S)


def _requests(pod: Object) -> dict[str, float]:
    (box,) = pod["spec"]["containers"]
    wanted = box["resources"].get("requests", {})
    return {name: amount(quantity) for name, quantity in wanted.items()}
