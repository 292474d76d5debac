"""One stage on a work pool: the flow, the work pool, and its deployments `stage/<stage>-<pool>`.

The stage task of a flow starts it; people start `coevolution`. The process ends with it, and its
output is in the store. A deployment names the flow by its module: the processes of the work pool
need genenv installed and download nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.exceptions import ObjectNotFound, TerminationSignal
from prefect.utilities.callables import parameter_schema

from flows.running.signals import supervise
from flows.stages import TASKS
from genenv_core.config.schema import RunConfig
from genenv_core.errors import ConfigError
from genenv_core.importing import collect_seldom
from tasks.placement.names import FLOW, OURS, deployment_name
from tasks.policies.trainer import ended
from tasks.stage.telemetry.spans import continued

ENTRYPOINT = "flows.deploy.stage_on_pool.stage"


@flow(name=FLOW, flow_run_name="{stage} · epoch {epoch} · {config.run_id}", persist_result=False)
def stage(
    config: RunConfig,
    stage: str,
    epoch: int,
    inputs: dict[str, Any],
    parts: dict[str, Any],
    traceparent: str = "",
) -> None:
    """Compute one stage for the flow that sent its inputs.

    Args:
        config: The resolved configuration.
        stage: Name of the stage.
        epoch: Number of the epoch.
        inputs: References to its inputs.
        parts: The parts of its key in that flow.
        traceparent: The span of the stage in that flow, '' where nobody asked for spans.
    """
    collect_seldom()
    logging.getLogger("genenv").setLevel(logging.INFO)  # for the stages' lines in the log
    with ended(), continued(traceparent):
        # After SIGTERM, as in an eviction, it works on to a point where the next attempt continues.
        supervise(
            lambda: TASKS[stage].compute_here(config, epoch, inputs, parts),
            soft=TerminationSignal,
        )


def make_work_pool(
    name: str,
    *,
    kind: str,
    stages: Sequence[str],
    template: dict[str, Any] | None = None,
    limit: int | None = None,
) -> list[str]:
    """Create or update a work pool and the deployments of stages on it; returns their names."""
    with get_client(sync_client=True) as client:
        _make_or_update(client, name, kind, template, limit)
        flow_id = client.create_flow(stage)
        return [_deploy(client, flow_id, one, name) for one in stages]


def _make_or_update(
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
                description="Stages of genenv; made by `genenv work-pool`.",
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


def _deploy(client: SyncPrefectClient, flow_id: Any, one: str, work_pool: str) -> str:
    name = deployment_name(one, work_pool)
    client.create_deployment(
        flow_id=flow_id,
        name=name.partition("/")[2],
        entrypoint=ENTRYPOINT,
        path=None,
        work_pool_name=work_pool,
        parameters={"stage": one},
        parameter_openapi_schema=parameter_schema(stage).model_dump_for_openapi(),
        enforce_parameter_schema=False,
        tags=[OURS],
        description=f"The stage {one}; started by the flow that wants it, not by people.",
    )
    return name
