"""Stage `evaluate`: the candidate agent on the held-out tasks, sampled and greedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from genenv_core.chat import ChatFormat
from genenv_core.engines.base import Engine
from genenv_core.rollout import run_rollouts
from genenv_core.storage.manifest import CheckpointRef
from genenv_core.types import SamplingParams, Task, TaskSource
from schemas.enums import EvaluationMode
from tasks.engine import SAMPLING_FIELDS, engine_of
from tasks.rows import frame, to_tasks
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
        *SAMPLING_FIELDS,
    ),
    ("torch", "transformers"),
)
CHUNK = 128
"""Tasks sampled together; the unit of progress."""


def compute(context: StageContext) -> dict[str, Any]:
    """Attempt every held-out task in each mode."""
    config = context.config
    data = context.frame("bootstrap", "tasks")
    tasks = to_tasks(data.filter(pl.col("source") == TaskSource.HELDOUT.value))
    folder, digest, version = candidate(context)
    chat = ChatFormat.load(folder)
    engine = engine_of(context, folder, digest, top_p=config.rollout.top_p)
    modes = [(EvaluationMode.SAMPLED, config.evaluation.samples, config.rollout.temperature)]
    if config.evaluation.greedy:
        modes.append((EvaluationMode.GREEDY, 1, 0.0))
    shared = {"epoch": context.epoch, "policy_version": version, "agent_checkpoint": digest}
    rows: list[dict[str, Any]] = []
    try:
        for mode, samples, temperature in modes:
            rows += _attempt(context, tasks, engine, chat, mode, samples, temperature, shared)
    finally:
        engine.close()
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
    engine: Engine,
    chat: ChatFormat,
    mode: EvaluationMode,
    samples: int,
    temperature: float,
    shared: dict[str, Any],
) -> list[dict[str, Any]]:
    """Return the rows of one mode."""
    settings, domain = context.config.rollout, context.domain()
    rows: list[dict[str, Any]] = []
    for start in range(0, len(tasks), CHUNK):
        context.progress(start, len(tasks), f"{mode.value} tasks")
        chunk = {task.task_id: task for task in tasks[start : start + CHUNK]}
        for rollout in run_rollouts(
            [(task.task_id, task.draft) for task in chunk.values()],
            domain,
            engine,
            chat,
            n=samples,
            params=SamplingParams(
                settings.max_tokens, temperature, settings.top_p if temperature else 1.0
            ),
            max_turns=settings.max_turns,
            max_length=settings.max_length,
            seed_of=lambda task, sample, turn: context.seed_for(mode.value, task, sample, turn),
        ):
            draft = chunk[rollout.task_id].draft
            verdict = domain.score(draft, rollout.messages)
            rows.append(
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
            )
    return rows


evaluate = StageTask(STAGE, compute)
