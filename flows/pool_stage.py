"""One stage on a work pool: the flow behind the deployments `stage/<stage>-<pool>`.

The stage task of a flow starts it; people start `coevolution`. Its end is the process's end, and
what it computed is in the store.
"""

from __future__ import annotations

import logging
from typing import Any

from prefect import flow
from prefect.exceptions import TerminationSignal

from flows.signals import supervise
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import StageName
from tasks.bootstrap import bootstrap
from tasks.evaluate import evaluate
from tasks.filter import filter_
from tasks.generate_tasks import generate_tasks
from tasks.grpo_update import grpo_update
from tasks.inputs import decode
from tasks.placement.names import FLOW
from tasks.pool import pool
from tasks.publish import publish
from tasks.rollout import rollout
from tasks.rwr_update import rwr_update
from tasks.score import score
from tasks.services import ended

TASKS = {
    task.stage.name: task
    for task in (
        bootstrap,
        generate_tasks,
        rollout,
        score,
        filter_,
        pool,
        grpo_update,
        rwr_update,
        evaluate,
        publish,
    )
}


@flow(name=FLOW, flow_run_name="{stage} · epoch {epoch} · {config.run_id}", persist_result=False)
def stage(
    config: RunConfig,
    stage: StageName,
    epoch: int,
    inputs: dict[str, Any],
    parts: dict[str, Any],
) -> None:
    """Compute one stage for the flow that sent its inputs.

    Args:
        config: The resolved configuration.
        stage: Name of the stage.
        epoch: Number of the epoch.
        inputs: References to what it reads.
        parts: The parts of its key, as that flow has them.
    """
    logging.getLogger("genenv").setLevel(logging.INFO)  # what stages say belongs in the log
    with ended():
        # SIGTERM, an eviction for one, lets it go on to where the next attempt can continue.
        supervise(
            lambda: TASKS[stage].compute_here(config, epoch, decode(inputs), parts),
            soft=TerminationSignal,
        )
