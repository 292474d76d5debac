"""Stage `publish`: the gates, the current checkpoints, and the epoch's summary row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import WARM_STARTS
from genenv_core.epoch.publishing import HeldoutSuccess, Update, publish_candidates, publish_first
from genenv_core.epoch.trouble import NARROW
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef
from genenv_core.types import Policy
from tasks.placement.task import StageTask
from tasks.stage import Stage, StageContext
from tasks.tracking.track import track
from tasks.upkeep.tidying import drop_superseded, tidy

STAGE = Stage(
    "publish",
    ("tasks.publish",),
    ("gates", "curriculum.alpha", "curriculum.k_min", "curriculum.level"),
)


@dataclass(frozen=True, slots=True)
class EpochOutputs:
    """The outputs of an epoch, and the agent's validation success before it."""

    tasks: ArtifactRef
    traces: ArtifactRef
    scores: ArtifactRef
    selections: ArtifactRef
    grpo: ArtifactRef
    rwr: ArtifactRef
    validation_current: float
    validation_best: float


@dataclass(frozen=True, slots=True)
class PublishInputs:
    """The current checkpoints, the evaluation, and an epoch's outputs (None in epoch 0).

    `warm_start` is the stage that made the first checkpoints, where it is not bootstrap.
    """

    evaluation: ArtifactRef
    agent: CheckpointRef
    env: CheckpointRef
    made: EpochOutputs | None = None
    warm_start: ArtifactRef | None = None


def compute(context: StageContext[PublishInputs]) -> dict[str, Any]:
    """Check the gates and write the rows; the next epoch starts from the facts."""
    inputs = context.inputs
    measured = HeldoutSuccess.of(context.manifest(inputs.evaluation))
    before = {Policy.AGENT: inputs.agent, Policy.ENV: inputs.env}
    made = inputs.made
    if made is None:
        digests = {policy: ref.digest for policy, ref in before.items()}
        start = context.manifest(inputs.agent.artifact).facts
        return context.write(publish_first(digests, measured, start.get(WARM_STARTS, {})))
    return context.write(
        publish_candidates(
            {
                Policy.AGENT: Update.of(context.manifest(made.grpo), before[Policy.AGENT]),
                Policy.ENV: Update.of(context.manifest(made.rwr), before[Policy.ENV]),
            },
            measured,
            current=made.validation_current,
            best=made.validation_best,
            tasks=context.frame(made.tasks, "tasks"),
            traces=context.frame(made.traces, "traces"),
            task_scores=context.frame(made.scores, "task_scores"),
            selections=context.frame(made.selections, "selections"),
            rollout_metrics=context.manifest(made.traces).facts["metrics"],
            fidelity=context.manifest(made.scores).facts.get("fidelity"),
            tasks_note=context.manifest(made.tasks).facts.get(NARROW, ""),
            epoch=context.epoch,
            gates=context.config.gates,
            curriculum=context.config.curriculum,
        )
    )


def _after(config: RunConfig, epoch: int, ref: ArtifactRef, artifacts: Artifacts) -> None:
    track(config, epoch, ref, artifacts)
    tidy(config, epoch, artifacts)
    drop_superseded(config, epoch, artifacts)


publish = StageTask(STAGE, PublishInputs, compute, after=_after)
