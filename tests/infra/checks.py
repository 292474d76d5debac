"""What the Kubernetes schemas do not see in a set of manifests; each check returns its findings.

A finding is one line that names the object. The checks know nothing of genenv's own manifests, so
tests feed them broken ones too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

QUANTITY = re.compile(r"^(0|[1-9][0-9]*)(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$")
SCALE = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12} | {
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "": 1
}  # fmt: skip
WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "Job")
ENUMS = {
    "accessModes": {"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"},
    "policyTypes": {"Ingress", "Egress"},
    "protocol": {"TCP", "UDP", "SCTP"},
    "imagePullPolicy": {"Always", "IfNotPresent", "Never"},
    "restartPolicy": {"Always", "OnFailure", "Never"},
    "effect": {"NoSchedule", "PreferNoSchedule", "NoExecute"},
    "medium": {"", "Memory"},
    "whenUnsatisfiable": {"DoNotSchedule", "ScheduleAnyway"},
    "fsGroupChangePolicy": {"OnRootMismatch", "Always"},
}
VERBS = {"create", "get", "list", "watch", "delete", "patch", "update"}


@dataclass(frozen=True)
class Pods:
    """The pods that one object makes."""

    owner: str
    labels: dict[str, str]
    spec: Object
    replicas: int = 1


def name_of(item: Object) -> str:
    """Return kind and name."""
    meta = item.get("metadata", {})
    return f"{item.get('kind')} {meta.get('name') or meta.get('generateName')}"


def pods_of(items: list[Object]) -> list[Pods]:
    """Return the pods of every workload."""
    found: list[Pods] = []
    for item in items:
        if item["kind"] in WORKLOADS:
            template = item["spec"]["template"]
            labels = template.get("metadata", {}).get("labels", {})
            found.append(
                Pods(name_of(item), labels, template["spec"], item["spec"].get("replicas", 1))
            )
    return found


def containers(pods: Pods) -> Iterator[tuple[str, Object, bool]]:
    """Yield the place of each container, the container, and whether it is an init container."""
    for kind, first in (("initContainers", True), ("containers", False)):
        for container in pods.spec.get(kind, []):
            yield f"{pods.owner} container {container['name']}", container, first


def matches(selector: Object, labels: dict[str, str]) -> bool:
    """Return whether a label selector takes these labels."""
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for rule in selector.get("matchExpressions", []):
        inside = labels.get(rule["key"]) in rule.get("values", [])
        present = rule["key"] in labels
        held = {"In": inside, "NotIn": not inside, "Exists": present, "DoesNotExist": not present}
        if not held[rule["operator"]]:
            return False
    return True


def selectors(items: list[Object], others: list[Pods]) -> list[str]:
    """Find selectors that miss their own pods or match none; `others` are made at run time."""
    found: list[str] = []
    pods = [*pods_of(items), *others]
    for item in items:
        spec = item.get("spec", {})
        if item["kind"] in ("Deployment", "StatefulSet"):
            if not matches(spec["selector"], spec["template"]["metadata"]["labels"]):
                found.append(f"{name_of(item)} does not select its own pods")
            taken = [p.owner for p in pods if matches(spec["selector"], p.labels)]
            if len(taken) > 1:
                found.append(f"{name_of(item)} also selects the pods of {taken}")
        if item["kind"] == "Service":
            taken = [p for p in pods if matches({"matchLabels": spec["selector"]}, p.labels)]
            if len(taken) != 1:
                found.append(f"{name_of(item)} selects the pods of {[p.owner for p in taken]}")
            for pod in taken:
                found += _service_ports(item, pod)
        if item["kind"] in ("PodDisruptionBudget", "NetworkPolicy"):
            for selector in pod_selectors(spec):
                if selector and not any(matches(selector, p.labels) for p in pods):
                    found.append(f"{name_of(item)} selects nothing with {selector}")
    return found


def pod_selectors(value: Any) -> Iterator[Object]:
    """Yield every selector of pods in this namespace."""
    if isinstance(value, list):
        for item in value:
            yield from pod_selectors(item)
    if isinstance(value, dict) and "namespaceSelector" not in value:
        for field, item in value.items():
            if field in ("podSelector", "selector"):
                yield item
            else:
                yield from pod_selectors(item)


def _service_ports(service: Object, pods: Pods) -> Iterator[str]:
    open_ = {
        port[field]
        for _, container, _ in containers(pods)
        for port in container.get("ports", [])
        for field in ("name", "containerPort")
        if field in port
    }
    for port in service["spec"]["ports"]:
        if port.get("targetPort", port["port"]) not in open_:
            yield f"{name_of(service)}: {pods.owner} has no port {port.get('targetPort')!r}"


def references(items: list[Object], others: list[Pods], secrets: set[str]) -> list[str]:
    """Find references to objects that do not exist; people create `secrets` by hand."""
    names = {kind: set[str]() for kind in ("ConfigMap", "PersistentVolumeClaim", "ServiceAccount")}
    roles = {i["metadata"]["name"] for i in items if i["kind"] == "Role"}
    found: list[str] = []
    for item in items:
        if item["kind"] in names:
            names[item["kind"]].add(item["metadata"]["name"])
    for pods in (*pods_of(items), *others):
        for kind, name in _named(pods.spec):
            if name not in (secrets if kind == "Secret" else names[kind]):
                found.append(f"{pods.owner}: there is no {kind} {name!r}")
        volumes = {volume["name"] for volume in pods.spec.get("volumes", [])}
        volumes |= _claimed(items, pods.owner)
        mounted = {
            mount["name"] for _, c, _ in containers(pods) for mount in c.get("volumeMounts", [])
        }
        found += [f"{pods.owner}: no volume {name!r} is there" for name in mounted - volumes]
        found += [f"{pods.owner}: nobody mounts {name!r}" for name in volumes - mounted]
        for where, container, _ in containers(pods):
            ports = {port["name"] for port in container.get("ports", [])}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                for action in ("httpGet", "tcpSocket"):
                    port = container.get(probe, {}).get(action, {}).get("port")
                    if port is not None and port not in ports:
                        found.append(f"{where}: {probe} names no port {port!r}")
    for item in items:
        if item["kind"] == "RoleBinding":
            subjects = {subject["name"] for subject in item["subjects"]}
            if item["roleRef"]["name"] not in roles or subjects - names["ServiceAccount"]:
                found.append(f"{name_of(item)} binds what is not there")
    return found


def _claimed(items: list[Object], owner: str) -> set[str]:
    return {
        claim["metadata"]["name"]
        for item in items
        if name_of(item) == owner
        for claim in item["spec"].get("volumeClaimTemplates", [])
    }


def _named(spec: Object) -> Iterator[tuple[str, str]]:
    yield "ServiceAccount", spec.get("serviceAccountName", "default")
    for volume in spec.get("volumes", []):
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"]
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
        if "secret" in volume:
            yield "Secret", volume["secret"]["secretName"]
    for container in (*spec.get("initContainers", []), *spec.get("containers", [])):
        for source in container.get("envFrom", []):
            for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
                if field in source:
                    yield kind, source[field]["name"]
        env = container.get("env", [])
        for variable in env if isinstance(env, list) else []:
            for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
                if field in variable.get("valueFrom", {}):
                    yield kind, variable["valueFrom"][field]["name"]
    for secret in spec.get("imagePullSecrets", []):
        yield "Secret", secret["name"]


def restricted(pods: list[Pods]) -> list[str]:
    """Find what the pod security level `restricted` refuses, and writable root file systems."""
    found: list[str] = []
    for pod in pods:
        context = pod.spec.get("securityContext", {})
        if not context.get("runAsNonRoot") or not context.get("runAsUser"):
            found.append(f"{pod.owner} may run as root")
        if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            found.append(f"{pod.owner} has no seccomp profile")
        for shared in ("hostNetwork", "hostPID", "hostIPC"):
            if pod.spec.get(shared):
                found.append(f"{pod.owner} has {shared}")
        for volume in pod.spec.get("volumes", []):
            if "hostPath" in volume:
                found.append(f"{pod.owner} mounts {volume['hostPath']['path']} of its node")
        for where, container, _ in containers(pod):
            context = container.get("securityContext", {})
            if context.get("allowPrivilegeEscalation") is not False:
                found.append(f"{where} may gain privileges")
            if context.get("readOnlyRootFilesystem") is not True:
                found.append(f"{where} can write to its root file system")
            if context.get("capabilities", {}) != {"drop": ["ALL"]}:
                found.append(f"{where} keeps capabilities")
            if context.get("privileged") or context.get("runAsUser") == 0:
                found.append(f"{where} is privileged")
    return found


def cared_for(pods: list[Pods]) -> list[str]:
    """Find containers without requests or a memory limit, and servers without probes."""
    found: list[str] = []
    for pod in pods:
        for where, container, first in containers(pod):
            resources = container.get("resources", {})
            for wanted in ("cpu", "memory", "ephemeral-storage"):
                if wanted not in resources.get("requests", {}):
                    found.append(f"{where} requests no {wanted}")
            if "memory" not in resources.get("limits", {}):
                found.append(f"{where} has no limit of memory")
            serves = not first and pod.spec.get("restartPolicy", "Always") == "Always"
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                if serves and probe not in container:
                    found.append(f"{where} has no {probe}")
            image = container["image"]
            if not image.startswith("{{") and not re.search(r":[\w.-]+$|@sha256:", image):
                found.append(f"{where}: image {image!r} has no tag")
            if image.endswith(":latest"):
                found.append(f"{where}: image {image!r} is whatever is newest")
    return found


def values(items: list[Object]) -> list[str]:
    """Find invalid quantities, requests above limits, and values outside their enum."""
    found: list[str] = []
    for item in items:
        for path, field, value in _leaves(item):
            where = f"{name_of(item)} {path}"
            parent = path.split(".")[-2] if "." in path else ""
            if (parent in ("requests", "limits", "hard") or field == "sizeLimit") and (
                not QUANTITY.match(str(value))
            ):
                found.append(f"{where}: {value!r} is no quantity")
            for enum, known in ENUMS.items():
                if re.search(rf"(^|\.){enum}(\.\d+)?$", path) and value not in known:
                    found.append(f"{where}: {value!r} is none of {sorted(known)}")
            if re.search(r"(^|\.)verbs\.\d+$", path) and value not in VERBS:
                found.append(f"{where}: {value!r} is no verb that is granted here")
    for pod in pods_of(items):
        for where, container, _ in containers(pod):
            resources = container.get("resources", {})
            for name, limit in resources.get("limits", {}).items():
                if amount(resources.get("requests", {}).get(name, 0)) > amount(limit):
                    found.append(f"{where} requests more {name} than its limit")
    return found


def _leaves(value: Any, path: str = "", field: str = "") -> Iterator[tuple[str, str, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            clean = str(name).replace(".", "_")
            yield from _leaves(item, f"{path}.{clean}" if path else clean, str(name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}.{index}", field)
    else:
        yield path, field, value


def amount(quantity: Any) -> float:
    """Return a quantity as a number, 0 if it is invalid."""
    found = QUANTITY.match(str(quantity))
    if not found:
        return 0.0
    return float(f"{found[1]}{found[2] or ''}") * SCALE[found[3] or ""]


def rights(items: list[Object]) -> list[str]:
    """Find rights beyond the namespace, and rights to everything."""
    found: list[str] = []
    for item in items:
        if item["kind"] in ("ClusterRole", "ClusterRoleBinding"):
            found.append(f"{name_of(item)} reaches beyond the namespace")
        for rule in item.get("rules", []) if item["kind"] == "Role" else []:
            words = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            if "*" in words:
                found.append(f"{name_of(item)} grants everything of something")
            if "secrets" in rule["resources"] and not rule.get("resourceNames"):
                found.append(f"{name_of(item)} reads every secret")
        if item["kind"] == "Secret":
            found.append(f"{name_of(item)} holds a secret")
    return found


def quota(items: list[Object], others: list[Pods]) -> list[str]:
    """Find quotas that all pods together exceed, with one of each of `others`."""
    found: list[str] = []
    for item in items:
        if item["kind"] != "ResourceQuota":
            continue
        for name, hard in item["spec"]["hard"].items():
            side, _, resource = name.partition(".")
            if side not in ("requests", "limits"):
                continue
            total = sum(
                pod.replicas
                * sum(
                    amount(c.get("resources", {}).get(side, {}).get(resource, 0))
                    for _, c, first in containers(pod)
                    if not first
                )
                for pod in (*pods_of(items), *others)
            )
            if total > amount(hard):
                found.append(f"{name_of(item)}: {total:g} of {name} are asked for, {hard} allowed")
    return found
