"""The run: bootstrap, then epochs 1..T, each from the state that the one before published."""

from __future__ import annotations

from prefect import flow

from flows.epoch import epoch
from flows.state import EpochState, initial_checkpoints
from genenv_core.config.load import run_name
from genenv_core.config.schema import RunConfig
from genenv_core.exchange.external import given_to
from tasks.bootstrap import bootstrap
from tasks.evaluate import EvaluateInputs, evaluate
from tasks.placement.api import check_placement
from tasks.placement.parents import cancel_children
from tasks.publish import PublishInputs, publish
from tasks.tracking.track import check_tracking
from tasks.upkeep.opening import open_run


@flow(
    name="coevolution",
    flow_run_name="{config.run_id}",
    persist_result=False,
    on_cancellation=[cancel_children],
)
def coevolution(config: RunConfig) -> EpochState:
    """Return the state after the last epoch; finished stages are reused.

    Args:
        config: The resolved configuration. Without a run_id, one is made from the rest.
    """
    return play(config.model_copy(update={"run_id": run_name(config, "run")}))


def play(config: RunConfig) -> EpochState:
    """Return the state after the last epoch of a run that has a name."""
    check_placement(config)
    check_tracking(config)
    open_run(config)
    state = start(config)
    for number in range(1, config.epochs + 1):
        state = epoch(config, number, state)
    return state


def start(config: RunConfig) -> EpochState:
    """Return the state that epoch 1 starts from: both first checkpoints, evaluated."""
    data = bootstrap(config, 0, given_to(config))
    agent, env = initial_checkpoints(data)
    evaluation = evaluate(config, 0, EvaluateInputs(agent, data, update=None))
    published = publish(config, 0, PublishInputs(evaluation, agent, env))
    return EpochState.after_bootstrap(data, published)
