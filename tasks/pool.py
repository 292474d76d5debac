"""Stage `pool`: appends this epoch's rows to D_train and D_env.

A pool is the sequence of its epochs' parts, so appending costs what the new rows cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from genenv_core.epoch import pooling
from genenv_core.storage.records.manifest import ArtifactRef
from tasks.placement.task import StageTask
from tasks.stage import Stage, StageContext

STAGE = Stage(
    "pool", ("tasks.pool",), ("rwr.pay", "rwr.lambda_", "curriculum.level", "grpo.scale_rewards")
)


@dataclass(frozen=True, slots=True)
class PoolInputs:
    """The outputs of an epoch from which the pools take rows."""

    tasks: ArtifactRef
    traces: ArtifactRef
    scores: ArtifactRef
    selections: ArtifactRef


def compute(context: StageContext[PoolInputs]) -> dict[str, Any]:
    """Write the admitted rows of both pools."""
    inputs = context.inputs
    return context.write(
        pooling.pools(
            tasks=context.frame(inputs.tasks, "tasks"),
            traces=context.frame(inputs.traces, "traces"),
            scores=context.frame(inputs.scores, "scores"),
            task_scores=context.frame(inputs.scores, "task_scores"),
            selections=context.frame(inputs.selections, "selections"),
            level=context.config.curriculum.level,
            pay=context.config.rwr.pay,
            lambda_=context.config.rwr.lambda_,
            scale=context.config.grpo.scale_rewards == "group",
        )
    )


pool = StageTask(STAGE, PoolInputs, compute)
