"""Stage `evaluate`: the candidate agent on the held-out tasks, in the same way in every epoch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from genenv_core.epoch.evaluating import candidate, evaluate_candidate, repeated, stands
from genenv_core.epoch.trouble import troubles
from genenv_core.ids import stage_seed
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef, Manifest
from tasks.placement.task import StageTask
from tasks.policies.engine import SAMPLING_FIELDS
from tasks.policies.sampler import sampler
from tasks.stage import Stage, StageContext

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
    """The current agent, the update that may have made a candidate, and the held-out tasks.

    `earlier` is an evaluation of the checkpoint to evaluate, where there is one.
    """

    agent: CheckpointRef
    bootstrap: ArtifactRef
    update: ArtifactRef | None
    earlier: ArtifactRef | None = None


def compute(context: StageContext[EvaluateInputs]) -> dict[str, Any]:
    """Attempt every held-out task in each mode, or reuse an earlier evaluation."""
    inputs = context.inputs
    subject = candidate(inputs.agent, inputs.update, context.epoch)
    facts = _again(context, subject) or _measured(context, subject)
    if "lost" in facts:
        log.warning("stage=%s lost=%d first=%r", STAGE.name, facts["lost"], facts["lost_first"])
    for said in troubles(facts):
        log.warning("stage=%s %s", STAGE.name, said)
    return facts


def standing(
    inputs: EvaluateInputs,
    key_parts: Mapping[str, Any],
    epoch: int,
    load: Callable[[ArtifactRef], Manifest],
) -> ArtifactRef | None:
    """Return the earlier evaluation that stands for this one, None without one.

    `load` returns the manifest of a reference.
    """
    earlier, subject = inputs.earlier, candidate(inputs.agent, inputs.update, epoch)
    return earlier if earlier and stands(load(earlier), key_parts, subject) else None


def _again(context: StageContext[EvaluateInputs], subject: CheckpointRef) -> dict[str, Any] | None:
    """Write the rows of the earlier evaluation that stands and return its facts, or None."""
    key_parts = context.out.key_parts
    earlier = standing(context.inputs, key_parts, context.epoch, context.manifest)
    if earlier is None:
        return None
    rows, texts = (context.frame(earlier, name) for name in ("evaluations", "evaluation_texts"))
    log.info(
        "stage=%s epoch=%d the agent has not changed since epoch %d: its evaluation stands",
        STAGE.name, context.epoch, rows["measured_epoch"][0],
    )  # fmt: skip
    return context.write(repeated(rows, texts, earlier.facts, subject, context.epoch))


def _measured(context: StageContext[EvaluateInputs], subject: CheckpointRef) -> dict[str, Any]:
    """Evaluate, write the rows and return the facts."""
    with sampler(context, subject) as sampling:
        return context.write(
            evaluate_candidate(
                sampling,
                subject,
                context.domain(),
                context.frame(context.inputs.bootstrap, "tasks"),
                epoch=context.epoch,
                evaluation=context.config.evaluation,
                settings=context.config.rollout,
                # Equal seeds in every epoch keep noise of sampling out of their differences.
                seed_for=partial(stage_seed, context.seed, STAGE.name, 0),
                progress=context.progress,
            )
        )


evaluate = StageTask(STAGE, EvaluateInputs, compute)
