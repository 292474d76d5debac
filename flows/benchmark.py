"""Measuring a model on a benchmark: a run with one stage."""

from __future__ import annotations

from functools import partial

from prefect import flow

from genenv_core.config.load import run_name
from genenv_core.config.schema import RunConfig
from genenv_core.domains.registry import get_domain
from genenv_core.measuring.items import benchmark_of, check_categories
from genenv_core.measuring.request import of_agent
from genenv_core.storage.records.manifest import ArtifactRef
from genenv_core.types import Policy
from tasks.benchmark import BenchmarkInputs, benchmark
from tasks.placement.api import check_placement
from tasks.placement.parents import cancel_children
from tasks.policies.measured import endpoint_of, model_of, named
from tasks.stage.planning import is_stored as stored
from tasks.stage.stopping import End, current_end, to_the_end
from tasks.telemetry.spans import run_span
from tasks.upkeep.opening import open_run


@flow(
    name="benchmark",
    flow_run_name="{config.run_id}",
    persist_result=False,
    on_cancellation=[cancel_children],
)
def measure(config: RunConfig) -> ArtifactRef:
    """Return the attempts, verdicts and metrics of a model; what is finished is reused.

    Args:
        config: The resolved configuration. Without a run_id, one is made from the rest.
    """
    return measured(config.model_copy(update={"run_id": run_name(config, "eval")}))


def measured(config: RunConfig) -> ArtifactRef:
    """Return the output of a measurement that has a name."""
    check_placement(config)
    inputs = inputs_of(config)
    open_run(config)
    with run_span(config):
        return benchmark(config, 0, inputs)


def measure_agent(config: RunConfig, epoch: int) -> bool:
    """Measure the agent of a run on what is due after an epoch, each in a run of its own.

    Returns False when a limit of the run ends that.
    """
    end = current_end()
    for one in map(named, of_agent(config, epoch)):
        if end and to_the_end(partial(_may_begin, end, one)) is None:
            return False
        measure(one)
    return True


def _may_begin(end: End, config: RunConfig) -> bool:
    """Return True; raises Ended for a measurement that would be computed after the end."""
    is_stored = partial(stored, benchmark.stage, config, 0, inputs_of(config))
    end.check(benchmark.stage.name, 0, is_stored)
    return True


def check_measured(config: RunConfig) -> None:
    """Raise ConfigError or DataError where a run's agent could not be measured later."""
    for one in of_agent(config, config.epochs):
        benchmark_of(get_domain(one.domain.name, one.domain.options))


def inputs_of(config: RunConfig) -> BenchmarkInputs:
    """Return what is measured; raises ConfigError and ModelError before any work."""
    given = config.benchmark
    check_categories(
        benchmark_of(get_domain(config.domain.name, config.domain.options)), given.categories
    )
    simulator = None
    if given.simulator is not None:
        simulator = model_of(config, "benchmark.simulator", given.simulator, Policy.ENV)
    if given.url is not None:
        return BenchmarkInputs(None, endpoint_of(config), simulator)
    model = model_of(config, "benchmark.model", str(given.model), Policy.AGENT)
    return BenchmarkInputs(model, None, simulator)
