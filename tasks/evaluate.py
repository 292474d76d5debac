"""Stage `evaluate`: the candidate agent on the held-out tasks, in the same way in every epoch."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any

from genenv_core.epoch.evaluating import candidate, evaluate_candidate
from genenv_core.epoch.trouble import troubles
from genenv_core.ids import stage_seed
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef
from tasks.policies.engine import SAMPLING_FIELDS
from tasks.policies.sampler import sampler
from tasks.stage import Stage, StageContext
from tasks.stage.task import StageTask

log = logging.getLogger("genenv.stage")

STAGE = Stage(
    "evaluate",
    ("tasks.evaluate",),
    (
        "domain",
        "evaluation",
        "models.agent_chat_template_kwargs",
        "rollout.max_tokens",
        "rollout.max_turns",
        "rollout.max_length",
        "rollout.temperature",
        "rollout.top_p",
        "tools",
        *SAMPLING_FIELDS,
    ),
    ("torch", "transformers"),
)


@dataclass(frozen=True, slots=True)
class EvaluateInputs:
    """The current agent, the update that may have made a candidate, and the held-out tasks."""

    agent: CheckpointRef
    bootstrap: ArtifactRef
    update: ArtifactRef | None


def compute(context: StageContext[EvaluateInputs]) -> dict[str, Any]:
    """Attempt every held-out task in each mode."""
    inputs = context.inputs
    subject = candidate(inputs.agent, inputs.update, context.epoch)
    with sampler(context, subject) as sampling:
        facts = context.write(
            evaluate_candidate(
                sampling,
                subject,
                context.domain(),
                context.frame(inputs.bootstrap, "tasks"),
                epoch=context.epoch,
                evaluation=context.config.evaluation,
                settings=context.config.rollout,
                # Equal in every epoch: a difference between epochs then has no noise of sampling.
                seed_for=partial(stage_seed, context.seed, STAGE.name, 0),
                progress=context.progress,
            )
        )
    if "lost" in facts:
        log.warning("stage=%s lost=%d first=%r", STAGE.name, facts["lost"], facts["lost_first"])
    for said in troubles(facts):
        log.warning("stage=%s %s", STAGE.name, said)
    return facts


evaluate = StageTask(STAGE, EvaluateInputs, compute)
