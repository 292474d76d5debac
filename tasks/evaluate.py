"""Stage `evaluate`: the candidate agent on the held-out tasks, sampled and greedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from genenv_core.storage.manifest import CheckpointRef
from genenv_core.types import SamplingParams, Task, TaskSource
from schemas.enums import EvaluationMode
from tasks.engine import SAMPLING_FIELDS
from tasks.rows import frame, to_tasks
from tasks.sampling import Sampler, Weights, sampler
from tasks.stage import Stage, StageContext, StageTask

STAGE = Stage(
    "evaluate",
    ("tasks.evaluate", "genenv_core.engines.transformers_engine"),
    (
        "domain",
        "evaluation",
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
CHUNK = 128
"""Tasks whose attempts are made in step; the unit of progress."""


def compute(context: StageContext) -> dict[str, Any]:
    """Attempt every held-out task in each mode."""
    config = context.config
    data = context.frame("bootstrap", "tasks")
    tasks = to_tasks(data.filter(pl.col("source") == TaskSource.HELDOUT.value))
    folder, digest, version = candidate(context)
    modes = [(EvaluationMode.SAMPLED, config.evaluation.samples, config.rollout.temperature)]
    if config.evaluation.greedy:
        modes.append((EvaluationMode.GREEDY, 1, 0.0))
    shared = {"epoch": context.epoch, "policy_version": version, "agent_checkpoint": digest}
    rows: list[dict[str, Any]] = []
    with sampler(context, Weights(folder, digest)) as sampling:
        for mode, samples, temperature in modes:
            rows += _attempt(context, tasks, sampling, mode, samples, temperature, shared)
    context.out.table("evaluations", frame("evaluations", rows))
    facts: dict[str, Any] = {"agent_checkpoint": digest}
    for mode, _, _ in modes:
        verdicts = [row["success"] for row in rows if row["mode"] == mode.value]
        facts[mode.value] = sum(verdicts) / len(verdicts)
    return facts


def candidate(context: StageContext) -> tuple[Path, str, int]:
    """Return folder, digest and version of what is evaluated: the updated agent, or the current."""
    current = context.inputs["agent"]
    assert isinstance(current, CheckpointRef)
    update = context.inputs["update"]
    if update is None or not context.manifest("update").of_checkpoint("agent"):
        return context.checkpoint("agent"), current.digest, current.policy_version
    manifest = context.manifest("update")
    digest = manifest.checkpoint_digest("agent")
    return context.artifacts.checkpoint(manifest, "agent"), digest, context.epoch


def _attempt(
    context: StageContext,
    tasks: list[Task],
    sampling: Sampler,
    mode: EvaluationMode,
    samples: int,
    temperature: float,
    shared: dict[str, Any],
) -> list[dict[str, Any]]:
    """Return the rows of one mode, in the order of the tasks."""
    settings, domain = context.config.rollout, context.domain()
    made: dict[int, list[dict[str, Any]]] = {}
    for index, rollouts in sampling.groups(
        [(task.task_id, task.draft) for task in tasks],
        batch=CHUNK,
        n=samples,
        params=SamplingParams(
            settings.max_tokens, temperature, settings.top_p if temperature else 1.0
        ),
        seed_of=lambda task, sample, turn: context.seed_for(mode.value, task, sample, turn),
    ):
        if len(made) % CHUNK == 0:
            context.progress(len(made), len(tasks), f"{mode.value} tasks")
        draft = tasks[index].draft
        made[index] = [
            {
                **shared,
                "task_id": rollout.task_id,
                "family": draft.family,
                "mode": mode.value,
                "sample_index": rollout.sample_index,
                "success": verdict.success and not rollout.error,
                "reward": 0.0 if rollout.error else verdict.reward,
                "response_tokens": sum(rollout.loss_mask),
                "failure": rollout.error[:80] or verdict.failure,
            }
            for rollout in rollouts
            for verdict in (domain.score(draft, rollout.messages),)
        ]
    return [row for index in sorted(made) for row in made[index]]


evaluate = StageTask(STAGE, compute)
