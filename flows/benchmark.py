"""Measuring a model on a benchmark: a run with one stage."""

from __future__ import annotations

from functools import partial

from flows.preparing import PreparedMeasurement, prepare_measurement
from flows.running.named import run_flow
from genenv_core.benchmarks.measuring.request import of_agent
from genenv_core.config.schema import RunConfig
from genenv_core.storage.records.manifest import ArtifactRef
from tasks.benchmark import benchmark
from tasks.stage.planning import is_stored as stored
from tasks.stage.stopping import End, current_end, or_cancelled, to_the_end
from tasks.stage.telemetry.spans import run_span
from tasks.upkeep.opening import open_run


@run_flow("benchmark")
def measure(config: RunConfig) -> ArtifactRef:
    """Return the attempts, verdicts and metrics of a model; what is finished is reused.

    Args:
        config: The resolved configuration. Without a run_id, one is made from the rest.
    """
    return or_cancelled(lambda: measured(prepare_measurement(config)))


def measure_as_flow(prepared: PreparedMeasurement) -> ArtifactRef:
    """Return what `measured` does, as a flow run `benchmark` that shows the configuration."""

    @run_flow("benchmark")
    def shown(config: RunConfig) -> ArtifactRef:
        return or_cancelled(lambda: measured(prepared))

    return shown(prepared.config)


def measured(prepared: PreparedMeasurement) -> ArtifactRef:
    """Return the output of a measurement."""
    open_run(prepared.config, prepared.fixed)
    with run_span(prepared.config):
        return benchmark(prepared.config, 0, prepared.inputs)


def measure_agent(config: RunConfig, epoch: int) -> bool:
    """Measure the agent of a run on what is due after an epoch, each in a run of its own.

    Returns False when a limit of the run ends that.
    """
    end = current_end()
    for asked in of_agent(config, epoch):
        one = prepare_measurement(asked, computes=False)  # the run has asked for the rest
        if end and to_the_end(partial(_may_begin, end, one)) is None:
            return False
        measure_as_flow(one)
    return True


def _may_begin(end: End, one: PreparedMeasurement) -> bool:
    """Return True; raises Ended for a measurement that would be computed after the end."""
    is_stored = partial(stored, benchmark.stage, one.config, 0, one.inputs)
    end.check(benchmark.stage.name, 0, is_stored)
    return True
