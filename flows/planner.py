"""What a run would do, found by walking the real flows without computing."""

from __future__ import annotations

import contextlib

from flows.coevolution import start
from flows.epoch import epoch
from flows.stages import EPOCH_STAGES, START_STAGES
from flows.state import EpochState
from genenv_core.config.load import run_name
from genenv_core.config.schema import RunConfig
from genenv_core.errors import ConfigError
from tasks.stage.planning import NotPlannable, Planned, planning


def plan_run(config: RunConfig) -> list[Planned]:
    """Return every stage of every epoch in order: hit, miss, or unknown until upstream is known."""
    config = config.model_copy(update={"run_id": run_name(config, "run")})
    with planning() as entries:
        try:
            state = start(config)
            for number in range(1, config.epochs + 1):
                state = epoch.fn(config, number, state)
        except NotPlannable:
            pass
    seen = {(entry.epoch, entry.stage) for entry in entries}
    for number in range(config.epochs + 1):
        for stage in EPOCH_STAGES if number else START_STAGES:
            if (number, stage) not in seen:
                entries.append(Planned(stage, number, "unknown"))
    return entries


def state_before(config: RunConfig, number: int) -> EpochState:
    """Return the state that an epoch starts from; raises ConfigError when one before is missing."""
    with planning() as entries:
        try:
            return _walked(config, number - 1)
        except NotPlannable:
            raise _unfinished(config, entries) from None


def planned_stage(config: RunConfig, stage: str, number: int) -> Planned:
    """Return one stage of one epoch with its inputs; raises ConfigError when they are not there."""
    number = 0 if stage == "bootstrap" else number
    if stage not in (EPOCH_STAGES if number else START_STAGES):
        raise ConfigError(f"there is no {stage} in epoch {number}: epochs count from 1")
    with planning() as entries:
        try:
            state = _walked(config, number - 1) if number else None
        except NotPlannable:
            raise _unfinished(config, entries) from None
        before = len(entries)
        with contextlib.suppress(NotPlannable):
            _ = epoch.fn(config, number, state) if state else start(config)
    (found,) = (entry for entry in entries[before:] if entry.stage == stage)
    if found.status == "unknown":
        raise _unfinished(config, entries)
    return found


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
