"""A model as the teacher of the arm offline: it writes one set of tasks, before epoch 1.

The teacher reads the domain's own messages, as pi_env does, and the same rules admit its tasks: a
text without a task becomes a row with its reason. The messages do not say how the agent does,
because the teacher writes before the agent has attempted anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from genenv_core.config.sections.curriculum import GenerationConfig
from genenv_core.domains.protocol import Domain
from genenv_core.engines.protocol import Engine
from genenv_core.epoch.rows import Output, Progress, SeedFor
from genenv_core.epoch.writing.contexts import asked_contexts
from genenv_core.epoch.writing.generation import GrammarOf
from genenv_core.epoch.writing.intake import Intake, TaskRequest, TaskText, drafts_of, sampled_text
from genenv_core.play.chat import ChatFormat
from genenv_core.types import (
    AgentHistory,
    Context,
    SampleRequest,
    SamplingParams,
    TaskSource,
)
from schemas.registry import empty


class Teacher(Protocol):
    """A model that writes texts of tasks.

    A failed request becomes an answer with finish_reason `error`. Raises EngineError when the model
    cannot write at all.
    """

    def write(self, asked: Sequence[TaskRequest]) -> list[TaskText]:
        """Return one answer for each request, in order."""
        ...


@dataclass(frozen=True, slots=True)
class CheckpointTeacher:
    """A checkpoint that an engine samples from."""

    engine: Engine
    chat: ChatFormat
    settings: GenerationConfig
    grammar: GrammarOf

    def write(self, asked: Sequence[TaskRequest]) -> list[TaskText]:
        """Return what the engine samples, as text."""
        params = SamplingParams(
            self.settings.max_tokens,
            self.settings.temperature,
            self.settings.top_p,
            self.chat.stop_token_ids,
        )
        requests = [
            SampleRequest(self.chat.first_prompt(one.messages), one.seed, self.grammar(one.context))
            for one in asked
        ]
        return [
            sampled_text(self.chat, request, done)
            for request, done in zip(requests, self.engine.sample(requests, params), strict=True)
        ]


def teach(
    teacher: Teacher,
    domain: Domain,
    settings: GenerationConfig,
    *,
    count: int,
    data: pl.DataFrame,
    epoch: int,
    scope: str,
    seed: int,
    seed_for: SeedFor,
    progress: Progress,
) -> Output:
    """Let a teacher write until it has `count` admitted tasks or has used max_generations.

    Args:
        teacher: the model.
        domain: what it writes tasks for.
        settings: generations of a context, and their bound.
        count: tasks of the set.
        data: the run's base and held-out tasks; the teacher sees the base tasks.
        epoch: number of the first round that uses the set.
        scope: the stage's, for ids.
        seed: the run's, which orders the contexts.
        seed_for: the seed of a generation.
        progress: called before each batch.
    """
    intake = Intake(domain, data, empty("tasks"), guard=settings.guard, epoch=epoch, scope=scope)
    wanted = asked_contexts(domain, data, AgentHistory(), settings, seed=seed, epoch=epoch)
    done = 0
    contexts: list[Context] = []
    for asked in intake.batches(wanted, count, seed_for, progress):
        for one, answer in zip(asked, teacher.write(asked), strict=True):
            for item in drafts_of(domain, answer):
                intake.add(
                    item,
                    source=TaskSource.TEACHER.value,
                    generation_index=done,
                    context_id=one.context.context_id,
                    base_task_id=one.context.base_task_id,
                    env_prompt_tokens=answer.prompt_tokens,
                    generation_tokens=answer.tokens,
                    generation_text=answer.text,
                )
            done += 1
            contexts.append(one.context)
    return intake.output(asked=contexts)
