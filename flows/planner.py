"""What a run would do, found by walking the real flows without computing."""

from __future__ import annotations

from flows.coevolution import start
from flows.epoch import epoch
from flows.stages import EPOCH_STAGES, START_STAGES
from genenv_core.config.load import run_name
from genenv_core.config.schema import RunConfig
from tasks.stage import NotPlannable, Planned, planning


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
