"""Work pools for stages: the pool itself and one deployment a stage.

A deployment names the flow by its module, so the processes of the pool have genenv installed and
nothing is downloaded. Making it again is an update.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.exceptions import ObjectNotFound
from prefect.utilities.callables import parameter_schema

from flows.pool_stage import stage
from genenv_core.errors import ConfigError
from tasks.placement.names import OURS, deployment_name

ENTRYPOINT = "flows.pool_stage.stage"


def make_pool(
    name: str,
    *,
    kind: str,
    stages: Sequence[str],
    template: dict[str, Any] | None = None,
    limit: int | None = None,
) -> list[str]:
    """Create or update a work pool and the deployments of stages on it; returns their names."""
    with get_client(sync_client=True) as client:
        _pool(client, name, kind, template, limit)
        flow_id = client.create_flow(stage)
        return [_deploy(client, flow_id, one, name) for one in stages]


def _pool(
    client: SyncPrefectClient,
    name: str,
    kind: str,
    template: dict[str, Any] | None,
    limit: int | None,
) -> None:
    try:
        known = client.read_work_pool(name)
    except ObjectNotFound:
        client.create_work_pool(
            WorkPoolCreate(
                name=name,
                type=kind,
                base_job_template=template or {},
                concurrency_limit=limit,
                description="Stages of genenv; made by `genenv pool`.",
            )
        )
        return
    if known.type != kind:
        raise ConfigError(
            f"the work pool {name!r} is of the type {known.type}, not {kind}: take another name or "
            f"delete it (prefect work-pool delete {name})"
        )
    changes: dict[str, Any] = {"concurrency_limit": limit}
    if template is not None:
        changes["base_job_template"] = template
    client.update_work_pool(name, WorkPoolUpdate(**changes))


def _deploy(client: SyncPrefectClient, flow_id: Any, one: str, pool: str) -> str:
    name = deployment_name(one, pool)
    client.create_deployment(
        flow_id=flow_id,
        name=name.partition("/")[2],
        entrypoint=ENTRYPOINT,
        path=None,
        work_pool_name=pool,
        parameters={"stage": one},
        parameter_openapi_schema=parameter_schema(stage).model_dump_for_openapi(),
        enforce_parameter_schema=False,
        tags=[OURS],
        description=f"The stage {one}; started by the flow that wants it, not by people.",
    )
    return name
