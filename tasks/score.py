"""Stage `score`: computes R_agent of each verdict, p_hat and R_env of each task, context, batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from genenv_core.epoch import scoring
from genenv_core.epoch.observing import episode_seed
from genenv_core.epoch.rows import to_tasks
from genenv_core.storage.records.manifest import ArtifactRef
from tasks.placement.task import StageTask
from tasks.stage import Stage, StageContext

STAGE = Stage(
    "score",
    ("tasks.score",),
    (
        "domain",
        "curriculum.alpha",
        "curriculum.beta",
        "curriculum.level",
        "curriculum.least_n",
    ),
)


@dataclass(frozen=True, slots=True)
class ScoreInputs:
    """The attempts, and their tasks."""

    tasks: ArtifactRef
    traces: ArtifactRef
    bootstrap: ArtifactRef


def compute(context: StageContext[ScoreInputs]) -> dict[str, Any]:
    """Judge attempts, rate every task, and compare pi_env's answers with the true ones."""
    inputs = context.inputs
    data = [context.frame(ref, "tasks") for ref in (inputs.tasks, inputs.bootstrap)]
    return context.write(
        scoring.score(
            context.frame(inputs.traces, "traces"),
            context.frame(inputs.traces, "trace_tokens"),
            [task for frame in data for task in to_tasks(frame)],
            context.domain(),
            epoch=context.epoch,
            curriculum=context.config.curriculum,
            seed_of=partial(episode_seed, context.seed, context.epoch),
        )
    )


score = StageTask(STAGE, ScoreInputs, compute)
