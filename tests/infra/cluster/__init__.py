"""A double of a Kubernetes cluster: API server, job controller, scheduler and kubelets.

It is for jobs: enough of the API that Prefect's real worker and its observer cannot tell the
difference, with pods that are real processes. What it does not have: networks, mount namespaces,
users and images of its own; a pod's process runs as the tests do, sees the claims' folders under
their own names, and finds genenv where the tests find it.
"""

from tests.infra.cluster.cluster import Cluster, Node

__all__ = ["Cluster", "Node"]
