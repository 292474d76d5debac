"""Stage `generate_tasks`: asks pi_env for tasks until it has enough, or takes given programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from genenv_core.algorithm.success.model import Attempts
from genenv_core.canonical import canonical_json
from genenv_core.config.sections.curriculum import CurriculumConfig, GenerationConfig
from genenv_core.domains.protocol import ConstrainsEnv, Domain, JoinsDomains, fixed_sets, shares_of
from genenv_core.engines.protocol import Engine
from genenv_core.epoch.attempting.choosing import choose, chosen_tasks
from genenv_core.epoch.rows import Output, Progress, SeedFor, of_source
from genenv_core.epoch.trouble import narrow_tasks
from genenv_core.epoch.writing.contexts import asked_contexts
from genenv_core.epoch.writing.intake import Intake, drafts_of, sampled_text
from genenv_core.errors import ConfigError
from genenv_core.ids import task_id
from genenv_core.play.chat import ChatFormat
from genenv_core.types import (
    AgentHistory,
    Completion,
    Context,
    Grammar,
    SampleRequest,
    SamplingParams,
    TaskDraft,
    TaskSource,
)
from schemas.registry import empty

GrammarOf = Callable[[Context], Grammar | None]


@dataclass(frozen=True, slots=True)
class Writer:
    """pi_env, ready to write tasks: its engine, its chat format, its version, its grammar."""

    engine: Engine
    chat: ChatFormat
    policy_version: int
    grammar: GrammarOf


def grammar_of(domain: Domain, settings: GenerationConfig) -> GrammarOf:
    """Return what pi_env may write in each context; raises ConfigError without a grammar."""
    if not settings.structured:
        return lambda _: None
    if not isinstance(domain, ConstrainsEnv):
        raise ConfigError(
            f"generation.structured: the domain {domain.name} has no grammar for pi_env: set it to "
            "false"
        )
    return domain.env_grammar


def write_tasks(
    writer: Writer,
    domain: Domain,
    settings: GenerationConfig,
    *,
    data: pl.DataFrame,
    recent: pl.DataFrame,
    history: AgentHistory,
    known: Sequence[Attempts],
    curriculum: CurriculumConfig,
    reserve: bool = False,
    epoch: int,
    scope: str,
    seed: int,
    seed_for: SeedFor,
    progress: Progress,
) -> Output:
    """Let pi_env write until it has enough admitted tasks or has used max_generations.

    The column `choice` says which of these the agent attempts: see
    `genenv_core.epoch.attempting.choosing`.

    Args:
        writer: pi_env.
        domain: what it writes tasks for.
        settings: how many tasks, and how to sample them.
        data: the run's base and held-out tasks; the base tasks condition pi_env.
        recent: tasks of earlier epochs; a task equal to one of them is a duplicate.
        history: the agent's success statistics, which condition pi_env too.
        known: attempts of earlier epochs, which the choice learns from.
        curriculum: what the choice looks for.
        reserve: whether the other tasks are a reserve.
        epoch: number of the round.
        scope: the stage's, for ids.
        seed: the run's, which orders the contexts.
        seed_for: the seed of a generation.
        progress: called before each batch.
    """
    intake = Intake(domain, data, recent, guard=settings.guard, epoch=epoch, scope=scope)
    chat = writer.chat
    params = SamplingParams(
        settings.max_tokens, settings.temperature, settings.top_p, chat.stop_token_ids
    )
    wanted = asked_contexts(
        domain,
        data,
        history if settings.condition_on_agent else AgentHistory(),
        settings,
        seed=seed,
        epoch=epoch,
    )
    enough = settings.tasks * settings.candidates
    generations: list[dict[str, Any]] = []
    contexts: list[Context] = []
    for asked in intake.batches(wanted, enough, seed_for, progress):
        requests = [
            SampleRequest(chat.first_prompt(one.messages), one.seed, writer.grammar(one.context))
            for one in asked
        ]
        completions = writer.engine.sample(requests, params)
        contexts += [one.context for one in asked]
        for one, request, done in zip(asked, requests, completions, strict=True):
            generations.append(_take(writer, intake, len(generations), one.context, request, done))
    written = intake.output(generations, contexts)
    tasks = choose(
        written.tables["tasks"],
        known,
        settings=settings,
        curriculum=curriculum,
        seed=seed_for("choice"),
        shares=shares_of(domain),
        reserve=reserve,
    )
    return Output(
        {**written.tables, "tasks": tasks},
        {
            **written.facts,
            "attempted": chosen_tasks(tasks).height,
            **narrow_tasks(_own(tasks, domain), of_source(data, TaskSource.BASE), epoch),
        },
    )


def _own(tasks: pl.DataFrame, domain: Domain) -> pl.DataFrame:
    """Return the tasks without those of fixed sets, which pi_env only chooses."""
    fixed = list(fixed_sets("", domain))
    if not isinstance(domain, JoinsDomains):
        return tasks.clear() if fixed else tasks
    label = pl.col("family").str.split("/").list.first()  # as the view task_domains has it
    return tasks.filter(~label.is_in(fixed).fill_null(False))


def take_programs(
    drafts: Sequence[TaskDraft],
    domain: Domain,
    *,
    data: pl.DataFrame,
    count: int,
    guard: bool,
    epoch: int,
    scope: str,
) -> Output:
    """Return an epoch's window of `count` drafts of a teacher; the first follows the last.

    Where a window holds a program twice, the second one is a row too, rejected as a duplicate. A
    program of an earlier epoch is no duplicate.
    """
    intake = Intake(domain, data, empty("tasks"), guard=guard, epoch=epoch, scope=scope)
    for offset in range(count):
        index = ((epoch - 1) * count + offset) % len(drafts)
        intake.add(
            drafts[index],
            source=TaskSource.TEACHER.value,
            generation_index=index,
            env_prompt_tokens=0,
            generation_tokens=0,
        )
    return intake.output()


def _take(
    writer: Writer,
    intake: Intake,
    index: int,
    context: Context,
    request: SampleRequest,
    done: Completion,
) -> dict[str, Any]:
    """Add the tasks of the index-th generation; return its row of `generations`."""
    shared = {
        "generation_id": f"n{task_id(intake.epoch, intake.scope, index)[1:]}",
        "context_id": context.context_id,
        "env_policy_version": writer.policy_version,
    }
    written, grammar = sampled_text(writer.chat, request, done), request.grammar
    for item in drafts_of(intake.domain, written):
        intake.add(
            item,
            **shared,
            source=TaskSource.GENERATED.value,
            generation_index=index,
            base_task_id=context.base_task_id,
            env_prompt_tokens=written.prompt_tokens,
            generation_tokens=written.tokens,
            generation_text=written.text,
        )
    return {
        **shared,
        "epoch": intake.epoch,
        "finish_reason": done.finish_reason.value,
        "error": done.error,
        "grammar": canonical_json(asdict(grammar)).decode() if grammar else None,
        "prompt_ids": request.prompt_ids,
        "token_ids": done.token_ids,
        "logprobs": done.logprobs,
    }
