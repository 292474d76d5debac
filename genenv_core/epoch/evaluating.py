"""Stage `evaluate`: the candidate agent on the held-out tasks, in the same way in every epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from genenv_core.algorithm.stats import mean
from genenv_core.canonical import canonical_json
from genenv_core.config.sections.evaluation import EvaluationConfig
from genenv_core.config.sections.rollout import RolloutConfig
from genenv_core.domains.protocol import Domain
from genenv_core.domains.steps import reason
from genenv_core.epoch.rows import Output, Progress, SeedFor, frame, of_source, to_tasks
from genenv_core.epoch.trouble import endless_attempts
from genenv_core.errors import StageError
from genenv_core.play.asked import judged
from genenv_core.play.attempt import Player
from genenv_core.storage.records.keys import changed
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef, Manifest
from genenv_core.types import Rollout, SamplingParams, Task, TaskSource, Verdict
from schemas.enums import EvaluationMode, Split
from schemas.registry import spec

CHUNK = 512
"""Tasks that the player attempts in step; the unit of progress."""

_NO_MEASURE = {"epoch", "inputs.agent", "inputs.update", "inputs.earlier"}
"""Parts of the stage's key that change no measurement of the same weights."""


def candidate(current: CheckpointRef, update: ArtifactRef | None, epoch: int) -> CheckpointRef:
    """Return the checkpoint to evaluate: that of the update, else the current one."""
    if update is None or current.name not in update.checkpoints:
        return current
    digest = update.checkpoints[current.name]
    return CheckpointRef(artifact=update, name=current.name, digest=digest, policy_version=epoch)


def stands(earlier: Manifest, key_parts: Mapping[str, Any], subject: CheckpointRef) -> bool:
    """Return whether an earlier evaluation is what evaluating `subject` again would give.

    That asks for the same weights, for a key that differs in no part that changes a measurement,
    and for a verdict on every attempt. The stage tries lost attempts again.

    Args:
        earlier: manifest of the evaluation.
        key_parts: those of the evaluation that it may stand for.
        subject: the checkpoint to evaluate.
    """
    same = earlier.facts["agent_checkpoint"] == subject.digest and "lost" not in earlier.facts
    return same and changed(earlier.key_parts, key_parts).keys() <= _NO_MEASURE


def repeated(
    evaluations: pl.DataFrame,
    texts: pl.DataFrame,
    facts: Mapping[str, Any],
    subject: CheckpointRef,
    epoch: int,
) -> Output:
    """Return an earlier evaluation as that of this epoch; `measured_epoch` stays the earlier one.

    Args:
        evaluations: its rows of the table.
        texts: its rows of `evaluation_texts`.
        facts: its facts.
        subject: the checkpoint that this epoch is to evaluate, of the same weights.
        epoch: number of the round.
    """
    columns = {"epoch": epoch, "policy_version": subject.policy_version}
    tables = {
        name: rows.with_columns(
            pl.lit(value).cast(rows.schema[column]).alias(column)
            for column, value in columns.items()
            if column in rows.columns
        )
        for name, rows in (("evaluations", evaluations), ("evaluation_texts", texts))
    }
    return Output(tables, dict(facts))


@dataclass(frozen=True, slots=True)
class _EvaluationWay:
    """How to attempt the tasks of a split: the mode, attempts a task, sampling parameters."""

    split: Split
    mode: EvaluationMode
    n: int
    params: SamplingParams


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
    """Return `evaluations` of every held-out task, and their texts; facts are means by way.

    An attempt that an environment or an engine broke has a text and no verdict, and counts in no
    mean. The fact `lost` is the number of such attempts, `lost_first` the error of one. Raises
    StageError where a way has no verdict at all.
    The player samples answers to the tasks of both splits. With `evaluation.greedy` it attempts the
    test tasks greedily too.

    Args:
        player: the evaluated checkpoint.
        subject: the reference to it.
        domain: judges the attempts.
        data: the run's base and held-out tasks.
        epoch: number of the round.
        evaluation: how often, and whether also greedily.
        settings: how the game's rollouts are sampled.
        seed_for: the seed of a turn, the same in every epoch, so that epochs are comparable.
        progress: called with each chunk of tasks.
    """
    sampling = SamplingParams(settings.max_tokens, settings.temperature, settings.top_p)
    ways = [
        _EvaluationWay(split, EvaluationMode.SAMPLED, evaluation.samples, sampling)
        for split in Split
    ]
    if evaluation.greedy:
        greedy = SamplingParams(settings.max_tokens, 0.0, 1.0)
        ways.append(_EvaluationWay(Split.TEST, EvaluationMode.GREEDY, 1, greedy))
    shared: dict[str, Any] = {
        "epoch": epoch,
        "measured_epoch": epoch,
        "policy_version": subject.policy_version,
        "agent_checkpoint": subject.digest,
    }
    rows: list[dict[str, Any]] = []
    texts: list[dict[str, Any]] = []
    facts: dict[str, Any] = {"agent_checkpoint": subject.digest}
    reasons: list[str] = []
    for way in ways:
        tasks = to_tasks(of_source(data, TaskSource(way.split.value)))
        made = _attempts(player, tasks, domain, way, seed_for, progress)
        of_way = [shared | row for row, rollout in made if not rollout.lost]
        texts += [_text(row | shared, rollout) for row, rollout in made]
        reasons += [rollout.finish_reason for _, rollout in made]
        lost = [rollout for _, rollout in made if rollout.lost]
        if not of_way:
            raise StageError(
                f"evaluate of epoch {epoch}: none of the {len(lost)} attempts at "
                f"{way.split.value} tasks, {way.mode.value}, came to a verdict, the last: "
                f"{lost[-1].error}; mend that and resume: everything else is kept"
            )
        if lost:
            facts["lost"] = facts.get("lost", 0) + len(lost)
            facts.setdefault("lost_first", lost[0].error)
        found = facts.setdefault(way.split.value, {})
        found[way.mode.value] = mean([float(row["success"]) for row in of_way])
        if of_way[0]["answer_probability"] is not None:
            found["answer_probability"] = mean([row["answer_probability"] for row, _ in made])
        rows += of_way
    tables = {
        "evaluations": frame("evaluations", rows),
        "evaluation_texts": frame("evaluation_texts", texts),
    }
    return Output(tables, facts | endless_attempts(reasons, f"evaluation {epoch}", settings))


def _attempts(
    player: Player,
    tasks: Sequence[Task],
    domain: Domain,
    way: _EvaluationWay,
    seed_for: SeedFor,
    progress: Progress,
) -> list[tuple[dict[str, Any], Rollout]]:
    """Return the row of each attempt at these tasks in one way, in the order of the tasks."""
    asked = [(task.task_id, task.draft) for task in tasks]
    place = {task.task_id: index for index, task in enumerate(tasks)}

    def seed_of(task: str, sample: int, turn: int) -> int:
        return seed_for(way.split.value, way.mode.value, place[task], sample, turn)

    probabilities = None
    if way.mode is EvaluationMode.SAMPLED:
        probabilities = player.answer_probabilities(asked, params=way.params, seed_of=seed_of)
    made: dict[int, list[tuple[dict[str, Any], Rollout]]] = {}
    for index, rollouts in player.groups(
        [asked[start : start + CHUNK] for start in range(0, len(asked), CHUNK)],
        n=way.n,
        params=way.params,
        seed_of=seed_of,
    ):
        if len(made) % CHUNK == 0:
            progress(len(made), len(tasks), f"{way.mode.value} {way.split.value} tasks")
        of_task = {
            "split": way.split.value,
            "mode": way.mode.value,
            "answer_probability": None if probabilities is None else probabilities[index],
        }
        made[index] = [
            (of_task | _row(tasks[index], rollout, domain), rollout) for rollout in rollouts
        ]
    return [row for index in sorted(made) for row in made[index]]


def _text(row: dict[str, Any], rollout: Rollout) -> dict[str, Any]:
    """Return the row of `evaluation_texts` beside a row of `evaluations`."""
    key = {name: row[name] for name in spec("evaluation_texts").key}
    messages = canonical_json(list(rollout.messages)).decode()
    broken = {"error": rollout.error, "cause": rollout.cause and rollout.cause.value}
    return key | {"messages": messages, "response_text": rollout.said} | broken


def _row(task: Task, rollout: Rollout, domain: Domain) -> dict[str, Any]:
    """Return the row of an attempt at a task; one that broke off has failed, whatever it said."""
    broken = Verdict(0.0, False, rollout.error)
    verdict = broken if rollout.error else judged(domain, task.draft, rollout.messages)
    return {
        "task_id": rollout.task_id,
        "family": task.draft.family,
        "sample_index": rollout.sample_index,
        "success": verdict.success,
        "reward": verdict.reward,
        "response_tokens": rollout.sampled,
        "failure": reason(rollout.error)[:80] or verdict.failure,
    }
