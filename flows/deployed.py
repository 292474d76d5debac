"""The flows that deployments name: what a person fills in, resolved, and then the same flows.

Each takes one request model, from which the UI makes its form. `coevolution` here and in
`flows/coevolution.py` are one flow to Prefect: same name, same work.
"""

from __future__ import annotations

from prefect import Flow, flow
from prefect.runtime import flow_run

from flows.coevolution import play
from flows.epoch import epoch as play_epoch
from flows.planner import planned_stage, state_before
from flows.requests import configuration, next_epoch, recorded
from flows.session import carry_out
from genenv_core.config.request import EpochRequest, RunRequest, StageRequest
from genenv_core.errors import GenenvError
from tasks.bootstrap import bootstrap as bootstrap_task
from tasks.evaluate import evaluate as evaluate_task
from tasks.generate_tasks import generate_tasks as generate_tasks_task
from tasks.grpo_update import grpo_update as grpo_update_task
from tasks.placement.parents import cancel_children
from tasks.rollout import rollout as rollout_task
from tasks.run import open_run
from tasks.rwr_update import rwr_update as rwr_update_task
from tasks.stage import StageTask


def _run_label() -> str:
    """Return the name of a flow run of `coevolution`; what is wrong is said by the flow itself."""
    try:
        config = configuration(RunRequest.model_validate(flow_run.parameters["request"]))
    except (GenenvError, ValueError):
        return "coevolution"
    return f"{config.run_id} · {config.epochs} epoch{'s' if config.epochs > 1 else ''}"


@flow(
    name="coevolution",
    flow_run_name=_run_label,
    persist_result=False,
    on_cancellation=[cancel_children],
)
def coevolution(request: RunRequest) -> None:
    """Train pi_agent against pi_env: bootstrap, then epoch after epoch.

    What is finished already, in this run or another of the same root, is reused and shows Cached.
    """
    config = configuration(request)
    carry_out(config, lambda: play(config))


@flow(
    name="epoch",
    flow_run_name="{request.run_id} · one epoch",
    persist_result=False,
    on_cancellation=[cancel_children],
)
def epoch(request: EpochRequest) -> None:
    """Carry out one epoch of a run whose earlier epochs are finished."""
    config = recorded(request)
    number = request.epoch or next_epoch(config)
    config = config.model_copy(update={"epochs": max(config.epochs, number)})
    state = state_before(config, number)
    open_run(config)
    carry_out(config, lambda: play_epoch.fn(config, number, state))


def _stage_flow(task: StageTask) -> Flow[[StageRequest], None]:
    """Return the flow that carries out one stage of one epoch of a run."""

    name = task.stage.name

    def run(request: StageRequest) -> None:
        config = recorded(request)
        stage = planned_stage(config, name, request.epoch)
        carry_out(config, lambda: task.submit(config, stage.epoch, **stage.inputs).result())

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"Carry out {name} of one epoch, from what its run has finished; else reuse it."
    label = f"{{request.run_id}} · {name} · epoch {{request.epoch}}"
    return flow(
        name=name,
        flow_run_name=label,
        persist_result=False,
        on_cancellation=[cancel_children],
    )(run)


bootstrap = _stage_flow(bootstrap_task)
generate_tasks = _stage_flow(generate_tasks_task)
rollout = _stage_flow(rollout_task)
grpo_update = _stage_flow(grpo_update_task)
rwr_update = _stage_flow(rwr_update_task)
evaluate = _stage_flow(evaluate_task)
