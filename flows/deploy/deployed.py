"""The flows that deployments name: they resolve a person's request and run the same flows.

Each takes one request model, from which the UI makes its form. `coevolution` here and in
`flows/coevolution.py` are one flow for Prefect: same name, same work. Under a worker, people look
at the Prefect API, and the worker sends signals. Prefect's own SIGTERM handler stays in place,
because a flow learns from it that it was cancelled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from prefect import Flow, flow, get_run_logger
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.runtime import flow_run
from prefect.states import Completed

from flows.benchmark import measured
from flows.coevolution import play
from flows.comparing import conclude, in_threads, play_all, raise_failures
from flows.deploy.benchmark_request import BenchmarkRequest
from flows.deploy.log_lines import shorten
from flows.deploy.refusals import refusals_named
from flows.deploy.requests import (
    comparison_of,
    configuration,
    measurement_of,
    next_epoch,
    recorded,
    work_of,
)
from flows.deploy.runs_on_pool import MOST_AT_ONCE, OnWorkPool
from flows.epoch import epoch as play_epoch
from flows.planner import planned_stage, state_before
from flows.preparing import prepare, prepare_measurement
from flows.running.work import do_work
from flows.shown.prefect_artifacts import Publisher, publish_summary, publish_verdicts
from flows.stages import TASKS
from genenv_core.compare.judging import too_few
from genenv_core.config.comparison import planned_runs
from genenv_core.config.request import RunRequest, ShortRequest
from genenv_core.config.requests_beside import (
    CompareRequest,
    EpochRequest,
    StageRequest,
)
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import STAGES
from genenv_core.errors import GenenvError
from genenv_core.storage.records.runs import RunLog
from tasks.placement.parents import cancel_children
from tasks.placement.task import StageTask
from tasks.stage import progress
from tasks.stage.limiting import within_limits
from tasks.stage.stores import leases_of
from tasks.upkeep.opening import open_run

RUN = "coevolution"
"""Name of the flow that plays a run, whichever form it was started with."""

shorten()

LEASE = "run"
"""Kind of lease that a flow holds on its run, so that a second one of the same run waits."""


def _carry_out(config: RunConfig, work: Callable[[], object]) -> State[None] | None:
    """Do `work` as a worker's flow on the run of this configuration.

    Returns Prefect's completed state under the name `Stopped` when a limit ended it, else None.
    """
    logging.getLogger("genenv").setLevel(logging.INFO)  # for the stages' lines in the log
    publisher = Publisher(config)
    with progress.listening(publisher.listen):
        try:
            do_work(lambda: _alone(config, work), TerminationSignal)
        finally:
            publisher.close()
            publish_summary(config, publisher)
    if publisher.stopped is None:
        return None
    return Completed(name="Stopped", message=publisher.stopped.message)


def _alone(config: RunConfig, work: Callable[[], object]) -> None:
    """Do the work while no other flow works on the same run."""
    logger = get_run_logger()

    def waiting(holder: str) -> None:
        logger.info("run %s is at work in %s: waiting for it to end", config.run_id, holder)

    leases, run = leases_of(config.root), str(config.run_id)
    with leases.hold(LEASE, run, lambda: None, waiting=waiting, check=progress.check):
        work()


def _run_label(form: type[RunRequest | ShortRequest]) -> str:
    """Return the name of a flow run that plays a run; the flow itself reports a wrong request."""
    try:
        config = configuration(form.model_validate(flow_run.parameters["request"]))
    except (GenenvError, ValueError):
        return RUN
    return f"{config.run_id} · {config.epochs} epoch{'s' if config.epochs > 1 else ''}"


def _comparison_label() -> str:
    """Return the name of a flow run of `compare`; the flow itself reports a wrong request."""
    try:
        request = CompareRequest.model_validate(flow_run.parameters["request"])
        return f"{', '.join(request.arms)} · {request.seeds} seeds"
    except ValueError:
        return "compare"


@flow(
    name=RUN,
    flow_run_name=partial(_run_label, ShortRequest),
    persist_result=False,
    on_cancellation=[cancel_children],
)
def begin(request: ShortRequest) -> State[None] | None:
    """Train pi_agent against pi_env: bootstrap, then epoch after epoch.

    Stages that this run or another one of the root has finished are reused and show Cached.
    """
    return _play(request)


@flow(
    name=RUN,
    flow_run_name=partial(_run_label, RunRequest),
    persist_result=False,
    on_cancellation=[cancel_children],
)
def coevolution(request: RunRequest) -> State[None] | None:
    """Train pi_agent against pi_env: bootstrap, then epoch after epoch.

    Stages that this run or another one of the root has finished are reused and show Cached.
    """
    return _play(request)


def _play(request: RunRequest | ShortRequest) -> State[None] | None:
    with refusals_named():
        work = work_of(request)

    def work_through() -> None:
        play(work.run, work.said)

    return _carry_out(work.run.config, work_through)


@flow(
    name="compare",
    flow_run_name=_comparison_label,
    persist_result=False,
    task_runner=in_threads(MOST_AT_ONCE),
    on_cancellation=[cancel_children],
)
def compare(request: CompareRequest) -> None:
    """Play arms on the same seeds, and say which is better.

    Runs that the root has are reused. The others are flow runs of the deployment coevolution.
    """
    logging.getLogger("genenv").setLevel(logging.INFO)
    with refusals_named():
        comparison, root = comparison_of(request)
        runs = planned_runs(comparison, root)
    launch, logger = OnWorkPool.here(root), get_run_logger()
    if few := too_few(comparison):
        logger.warning(few)
    failures = do_work(lambda: play_all(runs, launch, logger.info), TerminationSignal)
    made = conclude(comparison, runs, failures)
    publish_verdicts(made)
    raise_failures(made)


def _benchmark_label() -> str:
    """Return the name of a flow run of `benchmark`; the flow itself reports a wrong request."""
    try:
        request = BenchmarkRequest.model_validate(flow_run.parameters["request"])
        return f"{request.benchmark} · {request.model_name or request.model}"
    except ValueError:
        return "benchmark"


@flow(
    name="benchmark",
    flow_run_name=_benchmark_label,
    persist_result=False,
    on_cancellation=[cancel_children],
)
def benchmark(request: BenchmarkRequest) -> None:
    """Measure a model on a benchmark.

    Attempts that are there already are reused. The verdict on each is in `benchmark_items`.
    """
    with refusals_named():
        prepared = prepare_measurement(measurement_of(request))
    _carry_out(prepared.config, lambda: measured(prepared))


@flow(
    name="epoch",
    flow_run_name="{request.run_id} · one epoch",
    persist_result=False,
    on_cancellation=[cancel_children],
)
def epoch(request: EpochRequest) -> State[None] | None:
    """Carry out one epoch of a run whose earlier epochs are finished."""
    with refusals_named():
        prepared = prepare(recorded(request))
    number = request.epoch or next_epoch(RunLog(prepared.store, request.run_id))
    epochs = max(prepared.config.epochs, number)
    config = prepared.config.model_copy(update={"epochs": epochs})
    state = state_before(replace(prepared, config=config), number)
    open_run(config, prepared.fixed)

    def play_one() -> None:
        with within_limits(config):
            play_epoch.fn(config, number, state)

    return _carry_out(config, play_one)


def _stage_flow(task: StageTask[Any]) -> Flow[[StageRequest], None]:
    """Return the flow that carries out one stage of one epoch of a run."""

    name = task.stage.name

    def run(request: StageRequest) -> None:
        with refusals_named():
            prepared = prepare(recorded(request))
            stage = planned_stage(prepared, name, request.epoch)
        config = prepared.config
        _carry_out(config, lambda: task(config, stage.epoch, stage.inputs))

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"Carry out {name} of one epoch, from what its run has finished, or reuse it."
    label = f"{{request.run_id}} · {name} · epoch {{request.epoch}}"
    return flow(
        name=name,
        flow_run_name=label,
        persist_result=False,
        on_cancellation=[cancel_children],
    )(run)


globals().update({name: _stage_flow(TASKS[name]) for name, entry in STAGES.items() if entry.alone})
