"""Stage `evaluate`: the candidate agent on the held-out tasks, sampled and greedy."""

from __future__ import annotations

from functools import partial
from typing import Any

import polars as pl

from genenv_core.config.sections.evaluation import EvaluationConfig
from genenv_core.config.sections.rollout import RolloutConfig
from genenv_core.domains.protocol import Domain
from genenv_core.epoch.rows import Output, Progress, SeedFor, frame, of_source, to_tasks
from genenv_core.play.attempt import Player
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef
from genenv_core.types import Rollout, SamplingParams, Task, TaskSource
from schemas.enums import EvaluationMode

CHUNK = 128
"""Tasks whose attempts are made in step; the unit of progress."""


def candidate(current: CheckpointRef, update: ArtifactRef | None, epoch: int) -> CheckpointRef:
    """Return the checkpoint to evaluate: the one that the update made, else the current one."""
    if update is None or current.name not in update.checkpoints:
        return current
    digest = update.checkpoints[current.name]
    return CheckpointRef(artifact=update, name=current.name, digest=digest, policy_version=epoch)


def evaluate_candidate(
    player: Player,
    subject: CheckpointRef,
    domain: Domain,
    data: pl.DataFrame,
    *,
    epoch: int,
    evaluation: EvaluationConfig,
    settings: RolloutConfig,
    seed_for: SeedFor,
    progress: Progress,
) -> Output:
    """Return `evaluations` of every held-out task in each mode; facts are mean successes.

    Args:
        player: the evaluated checkpoint.
        subject: the reference to it.
        domain: judges the attempts.
        data: the run's base and held-out tasks.
        epoch: number of the round.
        evaluation: how often, and whether also greedily.
        settings: of the sampling of the game's rollouts.
        seed_for: the seed of a turn.
        progress: called with each chunk of tasks.
    """
    tasks = to_tasks(of_source(data, TaskSource.HELDOUT))
    batches = [
        [(task.task_id, task.draft) for task in tasks[start : start + CHUNK]]
        for start in range(0, len(tasks), CHUNK)
    ]
    modes = {EvaluationMode.SAMPLED: (evaluation.samples, settings.temperature, settings.top_p)}
    if evaluation.greedy:
        modes[EvaluationMode.GREEDY] = (1, 0.0, 1.0)
    shared = {
        "epoch": epoch,
        "policy_version": subject.policy_version,
        "agent_checkpoint": subject.digest,
    }
    rows: list[dict[str, Any]] = []
    facts: dict[str, Any] = {"agent_checkpoint": subject.digest}
    for mode, (n, temperature, top_p) in modes.items():
        made: dict[int, list[dict[str, Any]]] = {}
        for index, rollouts in player.groups(
            batches,
            n=n,
            params=SamplingParams(settings.max_tokens, temperature, top_p),
            seed_of=partial(seed_for, mode.value),
        ):
            if len(made) % CHUNK == 0:
                progress(len(made), len(tasks), f"{mode.value} tasks")
            of_task = {**shared, "mode": mode.value}
            made[index] = [_row(tasks[index], rollout, domain, of_task) for rollout in rollouts]
        of_mode = [row for index in sorted(made) for row in made[index]]
        facts[mode.value] = sum(row["success"] for row in of_mode) / len(of_mode)
        rows += of_mode
    return Output({"evaluations": frame("evaluations", rows)}, facts)


def _row(task: Task, rollout: Rollout, domain: Domain, shared: dict[str, Any]) -> dict[str, Any]:
    """Return the row of an attempt at a task; a broken one has failed, whatever its answer."""
    verdict = domain.score(task.draft, rollout.messages)
    return {
        **shared,
        "task_id": rollout.task_id,
        "family": task.draft.family,
        "sample_index": rollout.sample_index,
        "success": verdict.success and not rollout.error,
        "reward": 0.0 if rollout.error else verdict.reward,
        "response_tokens": sum(rollout.loss_mask),
        "failure": rollout.error[:80] or verdict.failure,
    }
