"""Stage `filter`: chooses the tasks that each update may use, with a reason for the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from genenv_core.epoch import selecting
from genenv_core.storage.records.manifest import ArtifactRef
from tasks.placement.task import StageTask
from tasks.stage import Stage, StageContext

STAGE = Stage(
    "filter",
    ("tasks.filter",),
    (
        "curriculum.alpha",
        "curriculum.level",
        "curriculum.k_min",
        "curriculum.filter_agent",
    ),
)


@dataclass(frozen=True, slots=True)
class FilterInputs:
    """The tasks, the attempts at them and their ratings."""

    tasks: ArtifactRef
    traces: ArtifactRef
    scores: ArtifactRef


def compute(context: StageContext[FilterInputs]) -> dict[str, Any]:
    """Decide on every task for each update."""
    return context.write(
        selecting.select(
            context.frame(context.inputs.tasks, "tasks"),
            context.frame(context.inputs.scores, "task_scores"),
            context.frame(context.inputs.traces, "traces"),
            epoch=context.epoch,
            curriculum=context.config.curriculum,
        )
    )


filter_ = StageTask(STAGE, FilterInputs, compute)
