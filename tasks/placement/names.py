"""Names and tags of flow runs and deployments that compute one stage on a pool."""

from __future__ import annotations

from uuid import UUID

OURS = "genenv"
"""Tag of every deployment and flow run of genenv."""

FLOW = "stage"
"""Name of the flow that computes one stage."""

MOST = 200
"""Flow runs asked for at once: as many as Prefect tells."""


def deployment_name(stage: str, pool: str) -> str:
    """Return the name of the deployment that computes a stage on a pool."""
    return f"{FLOW}/{stage}-{pool}"


def child_tag(base: str) -> str:
    """Return the tag of all attempts at one stage key on one pool of one root."""
    return f"{OURS} {base}"


def parent_tag(run_id: UUID) -> str:
    """Return the tag of what a flow run has on pools."""
    return f"parent {run_id}"
