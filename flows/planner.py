"""Plans a run: walks the real flows without computing."""

from __future__ import annotations

import contextlib

from flows.benchmark import inputs_of
from flows.coevolution import start
from flows.epoch import epoch
from flows.state import EpochState
from genenv_core.config.load import run_name
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import EPOCH_STAGES, STAGES, START_STAGES
from genenv_core.epoch.windows import set_of
from genenv_core.errors import ConfigError, StageError
from tasks.benchmark import benchmark
from tasks.stage.planning import NotPlannable, Planned, planning


def plan_run(config: RunConfig) -> list[Planned]:
    """Return all stages of all epochs in order: hit, miss, or unknown until upstream is known."""
    config = config.model_copy(update={"run_id": run_name(config, "run")})
    if config.benchmark.given:
        with planning() as entries, contextlib.suppress(NotPlannable):
            benchmark(config, 0, inputs_of(config))
        return entries
    # A run that stops for want of tasks has no more stages to plan.
    with planning() as entries, contextlib.suppress(NotPlannable, StageError):
        _walked(config, config.epochs)
    seen = {(entry.epoch, entry.stage) for entry in entries}
    for number in range(config.epochs + 1):
        for stage in EPOCH_STAGES if number else START_STAGES:
            # An arm with one set of tasks has them planned for the epoch they are made for.
            planned = set_of(config, number) if stage == "generate_tasks" else number
            if (planned, stage) not in seen:
                entries.append(Planned(stage, number, "unknown"))
    return entries


def state_before(config: RunConfig, number: int) -> EpochState:
    """Return the state that an epoch starts from; raises ConfigError if one before is missing."""
    with planning() as entries:
        try:
            return _walked(config, number - 1)
        except NotPlannable:
            raise _unfinished(config, entries) from None


def planned_stage(config: RunConfig, stage: str, number: int) -> Planned:
    """Return one stage of one epoch with its inputs; raises ConfigError if they are missing."""
    number = number if STAGES[stage].in_epochs else 0
    if stage not in (EPOCH_STAGES if number else START_STAGES):
        raise ConfigError(f"there is no {stage} in epoch {number}: epochs count from 1")
    state = state_before(config, number) if number else None
    with planning() as entries, contextlib.suppress(NotPlannable):
        _ = epoch.fn(config, number, state) if state else start(config)
    for entry in entries:
        if entry.stage == stage:
            return entry
    raise _unfinished(config, entries)


def _walked(config: RunConfig, epochs: int) -> EpochState:
    state = start(config)
    for number in range(1, epochs + 1):
        state = epoch.fn(config, number, state)
    return state


def _unfinished(config: RunConfig, entries: list[Planned]) -> ConfigError:
    first = next(entry for entry in entries if entry.status != "hit")
    return ConfigError(
        f"{first.stage} of epoch {first.epoch} of run {config.run_id} is not finished: continue "
        "the run with the deployment coevolution, resume set to it, or with `genenv resume`"
    )
