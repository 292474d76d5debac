"""Measures what each group of an agent update teaches, for updates with `grpo.attribution`.

The validation tasks stand for what the agent should learn. No update trains on them, and they are
others than the test tasks, which no part of the loop reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import polars as pl

from genenv_core.config.schema import RunConfig
from genenv_core.domains.protocol import Domain, WritesAnswers, begins_anew
from genenv_core.engines.protocol import Engine
from genenv_core.epoch.rows import UpdateRows, frame, of_source, shaped, to_tasks
from genenv_core.errors import ConfigError
from genenv_core.play.answer import reference_attempts
from genenv_core.play.attempt import Play
from genenv_core.play.chat import ChatFormat
from genenv_core.training.grpo.taught import GroupInfluence, ScoredAnswer
from genenv_core.training.updates.grpo import GrpoRequest
from genenv_core.types import SamplingParams, Task, TaskSource
from tasks.policies.sampler import bounds_of
from tasks.stage import StageContext


def answering(domain: Domain) -> WritesAnswers:
    """Return a domain that writes answers; raises ConfigError for any other.

    It also raises that for a domain that begins the conversation anew, because the gradient is of
    one sequence.
    """
    if begins_anew(domain):
        raise ConfigError(
            f"grpo.attribution: domain {domain.name} begins the conversation anew, so an answer is "
            "several sequences, and the gradient of P(answer) is computed of one: leave "
            "grpo.attribution out"
        )
    if isinstance(domain, WritesAnswers):
        return domain
    raise ConfigError(
        f"grpo.attribution: domain {domain.name} has no answer_turns, so P(answer) of its "
        "validation tasks cannot be computed: give the domain that method, or leave "
        "grpo.attribution out"
    )


def attribute(
    context: StageContext[Any], rows: UpdateRows | None, request: Callable[..., GrpoRequest]
) -> None:
    """Write the table `influence` before an update computes; empty without rows.

    `rows` and `request` are those of `tasks.policies.update.update`. The inputs of `context` have
    `agent`, `bootstrap`, `pool` and `history_pools`. Raises ConfigError and TrainingError.
    """
    if rows is None or rows.samples.is_empty():
        context.out.table("influence", frame("influence", []))
        return
    inputs = context.inputs
    checkpoint = context.checkpoint(inputs.agent)
    data = of_source(context.frame(inputs.bootstrap, "tasks"), TaskSource.VALIDATION)
    answers = scored_answers(context.config, context.domain(), checkpoint, to_tasks(data))
    path = context.work / "attributed.parquet"
    rows.training.write_parquet(path)
    asked = request(
        checkpoint=checkpoint,
        output=context.work / "attributed",
        rows=path,
        seed=context.seed_for("train") % 2**31,
        threads=context.config.compute.threads,
    )
    pools = [inputs.pool, *inputs.history_pools]
    tasks = context.frame(pools, "d_train").select("group_id", "task_id").unique()
    from genenv_core.training.grpo.influence import influence  # loads torch

    found = influence(asked, answers)
    made = influence_rows(found, rows, tasks, answers, epoch=context.epoch)
    context.out.table("influence", made)


def influence_rows(
    found: Sequence[GroupInfluence],
    rows: UpdateRows,
    tasks: pl.DataFrame,
    answers: Sequence[ScoredAnswer],
    *,
    epoch: int,
) -> pl.DataFrame:
    """Return rows of `influence`, in the order of the groups.

    Args:
        found: the measurements, one for each group.
        rows: those of the update.
        tasks: the task of each group, columns group_id and task_id.
        answers: those of the validation tasks; each group gets an equal part of their tokens.
        epoch: of the update.
    """
    total = math.fsum(abs(one.alignment) for one in found)
    read = 3 * sum(len(one.prompt_ids) + len(one.token_ids) for one in answers)
    measured = pl.DataFrame(
        {
            "group_id": [one.group_id for one in found],
            "alignment": [one.alignment for one in found],
            "share": [one.alignment / total if total else 0.0 for one in found],
            "loss_tokens": [one.tokens for one in found],
            "part": [(read + place) // len(found) for place in range(len(found))],
        }
    )
    lengths = pl.col("prompt_ids").list.len() + pl.col("completion_ids").list.len()
    own = rows.training.group_by("group_id").agg(rows_tokens=lengths.sum().cast(pl.Int64))
    sources = rows.samples.select("group_id", "source").unique()
    joined = measured
    for more in (own, sources, tasks):
        joined = joined.join(more, on="group_id", how="left", maintain_order="left")
    return shaped(
        "influence",
        joined.with_columns(epoch=pl.lit(epoch), tokens=2 * pl.col("rows_tokens") + pl.col("part")),
    )


def scored_answers(
    config: RunConfig, domain: Domain, checkpoint: Path, tasks: Sequence[Task]
) -> list[ScoredAnswer]:
    """Return the reference answers of those tasks whose answer fits into an attempt.

    `checkpoint` has the chat template. Raises ConfigError for a domain that cannot write answers.
    """
    writing, settings = answering(domain), config.rollout
    chat = ChatFormat.load(checkpoint, config.models.agent_chat_template_kwargs)
    params = SamplingParams(settings.max_tokens, settings.temperature, settings.top_p)
    nobody = cast(Engine, None)  # it samples nothing
    play = Play(domain, nobody, chat, bounds_of(config, 1), params, lambda task, sample, turn: 0)
    made = reference_attempts([(task.task_id, task.draft) for task in tasks], play, writing)
    return [
        ScoredAnswer(one.prompt_ids, tuple(one.token_ids), tuple(one.loss_mask))
        for one in made.values()
    ]
