"""Stage `generate_tasks`: pi_env writes this epoch's tasks; what is no task stays as a row."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from genenv_core.algorithm.admission import admit
from genenv_core.algorithm.context import make_contexts
from genenv_core.chat import ChatFormat
from genenv_core.domains.base import Domain
from genenv_core.domains.grammar import ConstrainsEnv
from genenv_core.errors import ConfigError
from genenv_core.exchange.base_data import read_base
from genenv_core.ids import task_id
from genenv_core.storage.manifest import FileRef
from genenv_core.types import (
    AgentHistory,
    Completion,
    Context,
    FinishReason,
    Grammar,
    Rejected,
    Rejection,
    SampleRequest,
    SamplingParams,
    TaskDraft,
    TaskSource,
)
from tasks.engine import SAMPLING_FIELDS, engine_of
from tasks.rows import draft_columns, frame, to_tasks
from tasks.stage import Stage, StageContext, StageTask

STAGE = Stage(
    "generate_tasks",
    ("tasks.generate_tasks", "genenv_core.engines.transformers_engine"),
    ("domain", "generation", *SAMPLING_FIELDS),
    ("torch", "transformers"),
)


@dataclass
class _Batch:
    """The rows of an epoch's tasks while they grow, and the fingerprints that are taken."""

    history: set[str]
    heldout: set[str]
    taken: set[str] = field(default_factory=set[str])
    tasks: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    generations: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def valid(self) -> int:
        """Return how many tasks were admitted."""
        return len(self.taken)


def compute(context: StageContext) -> dict[str, Any]:
    """Sample until enough tasks are admitted or max_generations is reached."""
    data = context.frame("bootstrap", "tasks")
    heldout = data.filter(pl.col("source") == TaskSource.HELDOUT.value)
    batch = _Batch(_fingerprints(context.frame("recent", "tasks")), _fingerprints(heldout))
    given = context.inputs["offline"]
    if isinstance(given, FileRef):
        _take_offline(context, batch, Path(given.path))
    else:
        _sample(context, batch, data.filter(pl.col("source") == TaskSource.BASE.value))
    context.out.table("tasks", frame("tasks", batch.tasks))
    context.out.table("generations", frame("generations", batch.generations))
    reasons: dict[str, int] = defaultdict(int)
    for row in batch.tasks:
        if not row["valid"]:
            reasons[row["rejection"]] += 1
    return {"generated": len(batch.tasks), "valid": batch.valid, "rejected": dict(reasons)}


def agent_history(scores: pl.DataFrame, tasks: pl.DataFrame) -> AgentHistory:
    """Return the agent's success statistics over the generated tasks of one epoch."""
    new = scores.filter(pl.col("source") == TaskSource.GENERATED.value).join(
        tasks.select("task_id", "family"), on="task_id"
    )
    if new.is_empty():
        return AgentHistory()
    groups = new.group_by("family").agg(pl.col("successes").sum(), pl.col("n").sum())
    return AgentHistory(
        success_rate=new["successes"].sum() / new["n"].sum(),
        by_family={family: (k, n) for family, k, n in sorted(groups.iter_rows())},
    )


def _sample(context: StageContext, batch: _Batch, base: pl.DataFrame) -> None:
    config, domain = context.config, context.domain()
    settings = config.generation
    if settings.structured and not isinstance(domain, ConstrainsEnv):
        raise ConfigError(
            f"generation.structured: the domain {domain.name} has no grammar for pi_env: set it to "
            "false"
        )
    history = agent_history(
        context.frame("last_scores", "task_scores"), context.frame("last_tasks", "tasks")
    )
    folder = context.checkpoint("env")
    chat = ChatFormat.load(folder)
    params = SamplingParams(
        settings.max_tokens, settings.temperature, settings.top_p, chat.stop_token_ids
    )
    digest = context.checkpoint_ref("env").digest
    engine = engine_of(context, folder, digest, top_p=settings.top_p)
    try:
        contexts = make_contexts(
            to_tasks(base),
            history,
            count=math.ceil(settings.max_generations / settings.tasks_per_context),
            seed=context.seed,
            epoch=context.epoch,
        )
        wanted = [c for c in contexts for _ in range(settings.tasks_per_context)]
        wanted = wanted[: settings.max_generations]
        while batch.valid < settings.tasks and len(batch.generations) < len(wanted):
            context.progress(batch.valid, settings.tasks, "tasks")
            start = len(batch.generations)
            asked = wanted[start : start + settings.tasks - batch.valid]
            prompts = [chat.first_prompt(domain.env_messages(c)) for c in asked]
            requests = [
                SampleRequest(
                    prompt,
                    context.seed_for("generation", start + offset),
                    _grammar(domain, asked_for) if settings.structured else None,
                )
                for offset, (prompt, asked_for) in enumerate(zip(prompts, asked, strict=True))
            ]
            completions = engine.sample(requests, params)
            for asked_for, request, done in zip(asked, requests, completions, strict=True):
                _take(context, batch, domain, asked_for, request, done, chat)
    finally:
        engine.close()


def _grammar(domain: Domain, asked_for: Context) -> Grammar:
    assert isinstance(domain, ConstrainsEnv)
    return domain.env_grammar(asked_for)


def _take(
    context: StageContext,
    batch: _Batch,
    domain: Domain,
    asked_for: Context,
    request: SampleRequest,
    done: Completion,
    chat: ChatFormat,
) -> None:
    """Add one generation and what became of it."""
    index = len(batch.generations)
    generation_id = f"n{task_id(context.epoch, context.scope, index)[1:]}"
    common = {
        "epoch": context.epoch,
        "context_id": asked_for.context_id,
        "env_policy_version": context.checkpoint_ref("env").policy_version,
        "generation_id": generation_id,
    }
    batch.generations.append(
        {
            **common,
            "finish_reason": done.finish_reason.value,
            "error": done.error,
            "prompt_ids": request.prompt_ids,
            "token_ids": done.token_ids,
            "logprobs": done.logprobs,
        }
    )
    text = chat.decode(done.token_ids)
    for item in _drafts(domain, done, text):
        draft = item
        if isinstance(item, TaskDraft):
            draft = admit(
                item, domain, batch=batch.taken, history=batch.history, heldout=batch.heldout
            )
        rejected = draft if isinstance(draft, Rejected) else None
        if isinstance(draft, TaskDraft):
            batch.taken.add(draft.fingerprint)
        batch.tasks.append(
            {
                **common,
                **(draft_columns(item) if isinstance(item, TaskDraft) else {}),
                "task_id": task_id(context.epoch, context.scope, len(batch.tasks)),
                "source": TaskSource.GENERATED.value,
                "generation_index": index,
                "base_task_id": asked_for.base_task_id,
                "valid": rejected is None,
                "rejection": rejected.reason.value if rejected else None,
                "rejection_detail": rejected.detail if rejected else "",
                "env_prompt_tokens": len(request.prompt_ids),
                "generation_tokens": len(done.token_ids),
                "generation_text": text,
            }
        )


def _drafts(domain: Domain, done: Completion, text: str) -> list[TaskDraft | Rejected]:
    if done.finish_reason is FinishReason.ERROR:
        return [Rejected(Rejection.ENGINE_ERROR, done.error)]
    if done.finish_reason is FinishReason.LENGTH:
        return [Rejected(Rejection.TRUNCATED, f"cut after {len(done.token_ids)} tokens")]
    return domain.parse(text)


def _take_offline(context: StageContext, batch: _Batch, path: Path) -> None:
    """Take this epoch's window of a file of programs; the file is read round and round."""
    domain, wanted = context.domain(), context.config.generation.tasks
    # A repeated program is a row too, rejected as a duplicate.
    drafts = read_base(path, domain, format_="jsonl", repeats=True).drafts
    first = (context.epoch - 1) * wanted
    for offset in range(wanted):
        index = (first + offset) % len(drafts)
        draft = drafts[index]
        made = admit(draft, domain, batch=batch.taken, history=(), heldout=batch.heldout)
        rejected = made if isinstance(made, Rejected) else None
        if rejected is None:
            batch.taken.add(draft.fingerprint)
        batch.tasks.append(
            {
                **draft_columns(draft),
                "task_id": task_id(context.epoch, context.scope, len(batch.tasks)),
                "epoch": context.epoch,
                "source": TaskSource.TEACHER.value,
                "generation_index": index,
                "valid": rejected is None,
                "rejection": rejected.reason.value if rejected else None,
                "rejection_detail": rejected.detail if rejected else "",
                "env_prompt_tokens": 0,
                "generation_tokens": 0,
            }
        )


def _fingerprints(tasks: pl.DataFrame) -> set[str]:
    return set(tasks.filter(pl.col("valid"))["fingerprint"].drop_nulls().to_list())


generate_tasks = StageTask(STAGE, compute)
