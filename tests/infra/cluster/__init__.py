"""A double of a Kubernetes cluster: API server, job controller, scheduler and kubelets.

It is for jobs: enough of the API for Prefect's real worker and its observer, with pods that are
real processes. It has no networks, mount namespaces, users and images: a pod's process runs as the
tests do, sees the claims' folders under their own names, and finds genenv where the tests find it.
"""

from tests.infra.cluster.cluster import Cluster, Node

__all__ = ["Cluster", "Node"]
