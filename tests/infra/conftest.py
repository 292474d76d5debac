"""What the tests of this folder share: `genenv up`, a Prefect server, a double of a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

# So long the server waits for a pod that has not begun to end by itself, three times here.
os.environ.setdefault(
    "PREFECT_SERVER_SERVICES_CANCELLATION_CLEANUP_CANCELLING_TIMEOUT_SECONDS", "10"
)

# SQLite on a busy machine: waiting is better than 503.
os.environ.setdefault("PREFECT_SERVER_DATABASE_TIMEOUT", "60")

from tests.infra.servers import Up
from tests.pipeline.conftest import api, begun, begun_root

__all__ = ["api", "begun", "begun_root"]

KUBERNETES = Path(__file__).parents[2] / "infra" / "kubernetes"
NAMESPACE = "genenv"


def granted() -> dict[str, list[dict[str, Any]]]:
    """Return the rules of each service account, as the manifests grant them."""
    items = list(yaml.safe_load_all((KUBERNETES / "base" / "accounts.yaml").read_text()))
    roles = {item["metadata"]["name"]: item["rules"] for item in items if item["kind"] == "Role"}
    return {
        subject["name"]: roles[item["roleRef"]["name"]]
        for item in items
        if item["kind"] == "RoleBinding"
        for subject in item["subjects"]
    }


@pytest.fixture(scope="session")
def tiny_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the root that tests share; pods evaluate in it too, so it begins empty."""
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Run a cluster of two nodes, one of which has two GPUs and a taint."""
    from tests.infra.cluster import Cluster, Node

    room = {"cpu": "16", "memory": "128Gi", "ephemeral-storage": "500Gi"}
    gpu = "nvidia.com/gpu"
    nodes = [
        Node("cpu-1", room),
        Node("gpu-1", {**room, gpu: "2"}, {f"{gpu}.present": "true"}, {gpu: "NoSchedule"}),
    ]
    made = Cluster(NAMESPACE, nodes, granted(), tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Run one `genenv up` for all tests."""
    started = Up(tmp_path_factory.mktemp("up") / "root")
    try:
        yield started.wait()
    finally:
        started.stop()
