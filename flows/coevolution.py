"""The run: bootstrap, then epochs 1..T, each from the state that the one before published."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from functools import partial
from importlib import import_module

from prefect import flow

from flows.epoch import epoch
from flows.state import EpochState, initial_checkpoints
from genenv_core.config.load import run_name
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import LAST
from genenv_core.engines.protocol import engine_module
from genenv_core.exchange.external import given_to
from genenv_core.storage.records.runs import RunLog
from tasks.bootstrap import bootstrap
from tasks.evaluate import EvaluateInputs, evaluate
from tasks.placement.api import check_placement
from tasks.placement.parents import cancel_children
from tasks.publish import PublishInputs, publish
from tasks.stage.progress import check
from tasks.stage.stores import artifacts_of
from tasks.tracking.track import check_tracking, prepare_tracking
from tasks.upkeep.opening import open_run

POLL_S = 0.2


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
    state = start(config, meanwhile=partial(_get_ready, config))
    for number in range(1, config.epochs + 1):
        state = epoch(config, number, state)
    return state


def start(config: RunConfig, meanwhile: Callable[[], None] | None = None) -> EpochState:
    """Return the state that epoch 1 starts from: both first checkpoints, evaluated.

    `meanwhile` is called beside the bootstrap, in a thread that nobody waits for when the run is
    to end.
    """
    making = bootstrap.submit(config, 0, given_to(config))
    beside = threading.Thread(target=meanwhile, name="loading", daemon=True)
    if meanwhile:
        beside.start()
    data = making.result()
    while beside.is_alive():
        check()
        beside.join(POLL_S)
    agent, env = initial_checkpoints(data)
    evaluation = evaluate(config, 0, EvaluateInputs(agent, data, update=None))
    published = publish(config, 0, PublishInputs(evaluation, agent, env))
    return EpochState.after_bootstrap(data, published)


def _get_ready(config: RunConfig) -> None:
    """Load what the first epoch needs, unless this run has passed it: seconds of imports."""
    with contextlib.suppress(Exception):  # it fails again where it is needed, and says so
        run = RunLog(artifacts_of(config.root).store, str(config.run_id))
        if LAST not in run.keys(0):
            for module in (engine_module(config.compute.engine), "transformers.modeling_utils"):
                import_module(module)
            prepare_tracking(config)
