"""Names and tags of flow runs and deployments that compute one stage on a work pool."""

from __future__ import annotations

from uuid import UUID

OURS = "genenv"
"""Tag of every deployment and flow run of genenv."""

FLOW = "stage"
"""Name of the flow that computes one stage."""

MOST = 200
"""Flow runs requested at once: Prefect's own limit."""


def deployment_name(stage: str, work_pool: str) -> str:
    """Return the name of the deployment that computes a stage on a work pool."""
    return f"{FLOW}/{stage}-{work_pool}"


def child_tag(ident: str) -> str:
    """Return the tag of all attempts at one stage key on one work pool of one root."""
    return f"{OURS} {ident}"


def parent_tag(run_id: UUID) -> str:
    """Return the tag of the children of a flow run."""
    return f"parent {run_id}"
