"""A kubelet: the processes of the pods that were scheduled to nodes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from genenv_core.machine.surroundings import deciding
from tests.holds import Holds
from tests.infra.checks import amount
from tests.infra.cluster.store import Object, Store

IMAGE_ENV = {
    # What the images of genenv set; and where they have it.
    "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}


class Container:
    """The one container of a pod, as a process with its children."""

    def __init__(self, pod: Object, folder: Path, env: dict[str, str], python: str) -> None:
        self.pod, self.folder, self.env, self.python = pod, folder, env, python
        self.log = folder / "log"
        self.limit = amount(pod["spec"]["containers"][0]["resources"]["limits"]["memory"])
        self.killed = ""
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        box = self.pod["spec"]["containers"][0]
        command = [*box.get("command", []), *box.get("args", [])]
        if command[0] == "prefect":
            command[:1] = [self.python, "-m", "prefect"]
        with self.log.open("wb") as output:
            self.process = await asyncio.create_subprocess_exec(
                *command,
                env=self.env,
                cwd=self.folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def memory(self) -> int:
        """Return the memory of all processes of the container, in bytes that they do not share."""
        total = 0
        for process in self.family():
            with contextlib.suppress(psutil.Error):
                info = process.memory_full_info()
                total += getattr(info, "uss", info.rss)
        return total

    def family(self) -> list[psutil.Process]:
        """Return the first process of the container and all its descendants."""
        assert self.process
        with contextlib.suppress(psutil.NoSuchProcess):
            main = psutil.Process(self.process.pid)
            return [main, *main.children(recursive=True)]
        return []

    def signal(self, number: int) -> None:
        """Send a signal as a container runtime does: only SIGKILL reaches every process."""
        assert self.process
        family = self.family()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)
        if number == signal.SIGKILL:
            for process in family:
                with contextlib.suppress(psutil.Error):
                    process.kill()


class Kubelet:
    """Runs the pods of all nodes; `folder` holds the files of each pod."""

    def __init__(self, store: Store, folder: Path, images: set[str], logs: dict[str, Any]) -> None:
        self.store, self.folder, self.images, self.logs = store, folder, images, logs
        self.running: dict[str, asyncio.Task[None]] = {}
        self.containers: dict[str, Container] = {}
        self.evicting: dict[str, str] = {}
        self.holds = Holds(folder / "holds")
        self.python = sys.executable
        """What pods run by; that of `tests.hold.forks` forks them, and hides their memory."""
        # An image is made for its machines: what decides arithmetic there is as it is here.
        self.env = IMAGE_ENV | deciding(os.environ) | self.holds.environment

    async def sync(self, namespace: str) -> None:
        """Start each scheduled pod once."""
        for pod in self.store.list("pods", namespace):
            uid = pod["metadata"]["uid"]
            if uid in self.running or not pod["spec"].get("nodeName"):
                continue
            if pod["status"]["phase"] in ("Succeeded", "Failed"):
                continue
            self.running[uid] = asyncio.create_task(self._run(pod))

    async def _run(self, pod: Object) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        box = pod["spec"]["containers"][0]
        if box["image"] not in self.images:
            await self._wait(pod, "ErrImagePull", f"failed to pull image {box['image']}: not found")
            await asyncio.sleep(0.5)  # a real one shows both states in turn
            text = f'Back-off pulling image "{box["image"]}"'
            await self._stay(pod, "ImagePullBackOff", text)
            return
        try:
            env = self._environment(pod, namespace)
        except LookupError as error:
            await self._stay(pod, "CreateContainerConfigError", str(error.args[0]))
            return
        folder = self.folder / name
        container = Container(pod, folder, env, self.python)
        self.containers[pod["metadata"]["uid"]] = container
        self.logs[name] = container.log
        await container.start()
        status = {"name": box["name"], "ready": True, "restartCount": 0, "image": box["image"]}
        running = {"running": {"startedAt": pod["metadata"]["creationTimestamp"]}}
        await self._status(pod, phase="Running", containerStatuses=[{**status, "state": running}])
        code = await self._watch(pod, container)
        reason = container.killed or ("Completed" if code == 0 else "Error")
        state = {"terminated": {"exitCode": code, "reason": reason}}
        changes: dict[str, Any] = {
            "phase": "Succeeded" if code == 0 else "Failed",
            "containerStatuses": [{**status, "ready": False, "state": state}],
        }
        if pod["metadata"]["uid"] in self.evicting:
            text = self.evicting[pod["metadata"]["uid"]]
            changes |= {"phase": "Failed", "reason": "Evicted", "message": text}
        await self._status(pod, **changes)
        shutil.rmtree(folder / "volumes", ignore_errors=True)

    async def _watch(self, pod: Object, container: Container) -> int:
        """Return the exit code; kills a pod above its memory limit or after its grace."""
        assert container.process
        uid, namespace = pod["metadata"]["uid"], pod["metadata"]["namespace"]
        exited = asyncio.create_task(container.process.wait())
        deadline: float | None = None
        loop = asyncio.get_running_loop()
        looked = 0.0
        while not exited.done():
            await asyncio.wait([exited], timeout=0.1)
            now = next((p for p in self.store.list("pods", namespace) if _uid(p) == uid), None)
            ending = now is None or "deletionTimestamp" in now["metadata"]
            if deadline is None and (ending or uid in self.evicting):
                grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
                if now and "deletionGracePeriodSeconds" in now["metadata"]:
                    grace = now["metadata"]["deletionGracePeriodSeconds"]
                deadline = loop.time() + grace
                container.signal(signal.SIGTERM)
            if loop.time() - looked > 0.5:
                looked = loop.time()
                if await asyncio.to_thread(container.memory) > container.limit:
                    container.killed = "OOMKilled"
                    container.signal(signal.SIGKILL)
            if deadline is not None and loop.time() > deadline:
                container.signal(signal.SIGKILL)
        code = exited.result()
        return 128 - code if code < 0 else code

    def _environment(self, pod: Object, namespace: str) -> dict[str, str]:
        """Return the container's variables; raises LookupError for a missing secret."""
        box = pod["spec"]["containers"][0]
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
        mounts: dict[str, Path] = {}
        for mount in box.get("volumeMounts", []):
            volume = volumes[mount["name"]]
            if "emptyDir" in volume:
                where = self.folder / pod["metadata"]["name"] / "volumes" / mount["name"]
                where.mkdir(parents=True)
                mounts[mount["mountPath"]] = where
            else:
                claim = volume["persistentVolumeClaim"]["claimName"]
                held = self.store.get("persistentvolumeclaims", namespace, claim)
                mounts[mount["mountPath"]] = Path(held["spec"]["folder"])
        env = dict(self.env)
        for source in box.get("envFrom", []):
            env |= self._secret(namespace, source["secretRef"]["name"])
        for item in box.get("env", []):
            if "valueFrom" in item:
                ref = item["valueFrom"]["secretKeyRef"]
                env[item["name"]] = self._secret(namespace, ref["name"])[ref["key"]]
            else:
                value = re.sub(r"\$\((\w+)\)", lambda m: env.get(m[1], m[0]), item["value"] or "")
                env[item["name"]] = _mounted(value, mounts)
        return env

    def _secret(self, namespace: str, name: str) -> Mapping[str, str]:
        found = self.store.objects.get(("secrets", namespace, name))
        if found is None:
            raise LookupError(f'secret "{name}" not found')
        return found["stringData"]

    async def _wait(self, pod: Object, reason: str, message: str) -> None:
        box = pod["spec"]["containers"][0]
        state = {"waiting": {"reason": reason, "message": message}}
        status = {"name": box["name"], "ready": False, "restartCount": 0, "state": state}
        await self._status(pod, phase="Pending", containerStatuses=[status])

    async def _stay(self, pod: Object, reason: str, message: str) -> None:
        """Keep a pod pending until it is deleted."""
        await self._wait(pod, reason, message)
        uid, namespace = pod["metadata"]["uid"], pod["metadata"]["namespace"]

        def wanted() -> bool:
            pods = {_uid(p): p for p in self.store.list("pods", namespace)}
            return uid in pods and "deletionTimestamp" not in pods[uid]["metadata"]

        while wanted():
            await asyncio.sleep(0.1)
        await self._status(pod, phase="Failed")

    async def _status(self, pod: Object, **changes: Any) -> None:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        found = self.store.objects.get(("pods", namespace, name))
        if found is None or _uid(found) != _uid(pod):
            return
        item = self.store.get("pods", namespace, name)
        item["status"] |= changes
        await self.store.update("pods", item)

    async def close(self) -> None:
        """Kill every remaining process."""
        for container in self.containers.values():
            if container.process and container.process.returncode is None:
                container.signal(signal.SIGKILL)
        for task in self.running.values():
            task.cancel()
        await asyncio.gather(*self.running.values(), return_exceptions=True)


def _uid(item: Object) -> str:
    return item["metadata"]["uid"]


def _mounted(value: str, mounts: Mapping[str, Path]) -> str:
    """Return a value with the pod's path replaced by the volume's path on this machine."""
    for path, where in mounts.items():
        if value == path or value.startswith(f"{path}/"):
            return str(where) + value.removeprefix(path)
    return value


Look = Callable[[], Object | None]
