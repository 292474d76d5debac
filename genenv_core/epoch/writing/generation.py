"""Stage `generate_tasks`: turns pi_env's texts and given programs into tasks or rejected rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from genenv_core.algorithm.admission import known as known_task
from genenv_core.algorithm.success_model import Attempts
from genenv_core.config.sections.curriculum import CurriculumConfig, GenerationConfig
from genenv_core.domains.protocol import ConstrainsEnv, Domain
from genenv_core.engines.protocol import Engine
from genenv_core.epoch.rows import (
    Output,
    Progress,
    SeedFor,
    draft_columns,
    frame,
    of_source,
)
from genenv_core.epoch.trouble import NO_TASK, narrow_tasks
from genenv_core.epoch.writing.choosing import attempted_tasks, choose
from genenv_core.epoch.writing.contexts import asked_contexts
from genenv_core.errors import ConfigError
from genenv_core.ids import task_id
from genenv_core.play.asked import env_prompt, parsed
from genenv_core.play.certificate import certify
from genenv_core.play.chat import ChatFormat
from genenv_core.storage.canonical import canonical_json
from genenv_core.types import (
    HELDOUT,
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
from schemas.registry import empty

GrammarOf = Callable[[Context], Grammar | None]

SHOWN = 120
"""Characters of a rejected text that are shown."""


@dataclass(frozen=True, slots=True)
class Writer:
    """pi_env, ready to write tasks: its engine, its chat format, its version, its grammar."""

    engine: Engine
    chat: ChatFormat
    policy_version: int
    grammar: GrammarOf


class Intake:
    """The rows of `tasks` while they grow; a draft becomes a task only if it is admitted.

    `data` are the run's data tasks, `recent` the tasks of earlier epochs. A task equal to a
    held-out one of `data` or to any of `recent` is rejected. So is one with a flaw, while the
    `guard` is on; its certificate is a row either way. Ids come from epoch and scope.
    """

    def __init__(
        self,
        domain: Domain,
        data: pl.DataFrame,
        recent: pl.DataFrame,
        *,
        guard: bool,
        epoch: int,
        scope: str,
    ) -> None:
        self.domain, self.epoch, self.scope = domain, epoch, scope
        self._guard = guard
        self._heldout = _fingerprints(of_source(data, *HELDOUT))
        self._history = _fingerprints(recent)
        self._taken: set[str] = set()
        self._rows: list[dict[str, Any]] = []
        self._certificates: list[dict[str, Any]] = []

    @property
    def valid(self) -> int:
        """Return how many tasks were admitted."""
        return len(self._taken)

    def add(self, item: TaskDraft | Rejected, **columns: Any) -> None:
        """Add the row of a draft, or of a text that the domain makes no draft of."""
        ident = task_id(self.epoch, self.scope, len(self._rows))
        rejected = self._refused(item, ident) if isinstance(item, TaskDraft) else item
        if isinstance(item, TaskDraft) and rejected is None:
            self._taken.add(item.fingerprint)
        self._rows.append(
            {
                **columns,
                **(draft_columns(item) if isinstance(item, TaskDraft) else {}),
                "task_id": ident,
                "epoch": self.epoch,
                "valid": rejected is None,
                "rejection": rejected.reason.value if rejected else None,
                "rejection_detail": rejected.detail if rejected else "",
            }
        )

    def _refused(self, draft: TaskDraft, ident: str) -> Rejected | None:
        """Return why the draft is no task; keep its certificate if it is a new one."""
        old = known_task(draft, batch=self._taken, history=self._history, heldout=self._heldout)
        if old is not None:
            return old
        checks = certify(draft, self.domain)
        self._certificates += [
            {
                "task_id": ident,
                "epoch": self.epoch,
                "flaw": check.flaw.value,
                "passed": check.passed,
                "detail": check.detail,
            }
            for check in checks
        ]
        flaw = next((check for check in checks if not check.passed), None)
        if flaw is None or not self._guard:
            return None
        return Rejected(Rejection(flaw.flaw.value), flaw.detail)

    def output(
        self, generations: Sequence[dict[str, Any]] = (), asked: Iterable[Context] = ()
    ) -> Output:
        """Return the tasks, the generations that they are from, and the contexts that were asked.

        A context with several generations is one row.
        """
        rejected = Counter(row["rejection"] for row in self._rows if not row["valid"])
        counts = {"generated": len(self._rows), "valid": self.valid}
        facts: dict[str, Any] = {**counts, "rejected": dict(rejected)}
        if not self.valid:
            facts[NO_TASK] = self._no_task(rejected)
        return Output(
            {
                "tasks": frame("tasks", self._rows),
                "certificates": frame("certificates", self._certificates),
                "contexts": frame("contexts", self._contexts(asked)),
                "generations": frame("generations", list(generations)),
            },
            facts,
        )

    def _contexts(self, asked: Iterable[Context]) -> list[dict[str, Any]]:
        return [
            {
                "context_id": context.context_id,
                "epoch": self.epoch,
                "base_task_id": context.base_task_id,
                "messages": canonical_json(env_prompt(self.domain, context)).decode(),
            }
            for context in {one.context_id: one for one in asked}.values()
        ]

    def _no_task(self, rejected: Counter[str]) -> str:
        """Return in words why no row is a task: the commonest reason, with its first text."""
        ((reason, count),) = rejected.most_common(1)
        row = next(row for row in self._rows if row["rejection"] == reason)
        text = str(row.get("generation_text") or row.get("program") or "")[:SHOWN]
        detail = str(row["rejection_detail"])[:SHOWN]
        return (
            f"epoch {self.epoch} has no valid task: {len(self._rows)} rejected, {count} of them as "
            f"{reason}, for example {text!r}" + (f" ({detail})" if detail else "")
        )


def grammar_of(domain: Domain, settings: GenerationConfig) -> GrammarOf:
    """Return what pi_env may write for a context; raises ConfigError without a grammar."""
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
    epoch: int,
    scope: str,
    seed: int,
    seed_for: SeedFor,
    progress: Progress,
) -> Output:
    """Return what pi_env writes until enough tasks are admitted or max_generations is reached.

    Of these tasks, `choice` says which are attempted; see `genenv_core.epoch.writing.choosing`.

    Args:
        writer: pi_env.
        domain: what it writes tasks for.
        settings: how many tasks, and how they are sampled.
        data: the run's base and held-out tasks; the base tasks condition pi_env.
        recent: tasks of earlier epochs; one equal to these is a duplicate.
        history: the agent's success statistics, which condition pi_env too.
        known: attempts of earlier epochs, which the choice learns from.
        curriculum: what the choice looks for.
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
    while intake.valid < enough and len(generations) < len(wanted):
        progress(intake.valid, enough, "tasks")
        start = len(generations)
        asked = wanted[start : start + enough - intake.valid]
        requests = [
            SampleRequest(
                chat.first_prompt(env_prompt(domain, context)),
                seed_for("generation", start + offset),
                writer.grammar(context),
            )
            for offset, context in enumerate(asked)
        ]
        completions = writer.engine.sample(requests, params)
        for context, request, done in zip(asked, requests, completions, strict=True):
            generations.append(_take(writer, intake, len(generations), context, request, done))
    written = intake.output(generations, wanted[: len(generations)])
    tasks = choose(
        written.tables["tasks"],
        known,
        settings=settings,
        curriculum=curriculum,
        seed=seed_for("choice"),
    )
    return Output(
        {**written.tables, "tasks": tasks},
        {
            **written.facts,
            "attempted": attempted_tasks(tasks).height,
            **narrow_tasks(tasks, of_source(data, TaskSource.BASE), epoch),
        },
    )


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
    """Return an epoch's window of `count` drafts of a teacher; after the last comes the first.

    A program that a window holds twice is also a row, rejected as a duplicate; one of an earlier
    epoch is admitted again.
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
    text, grammar = writer.chat.decode(done.token_ids), request.grammar
    for item in drafts_of(intake.domain, done, text):
        intake.add(
            item,
            **shared,
            source=TaskSource.GENERATED.value,
            generation_index=index,
            base_task_id=context.base_task_id,
            env_prompt_tokens=len(request.prompt_ids),
            generation_tokens=len(done.token_ids),
            generation_text=text,
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


def drafts_of(domain: Domain, done: Completion, text: str) -> list[TaskDraft | Rejected]:
    """Return what a domain makes of a text of pi_env, which failed or ended in time or not."""
    if done.finish_reason is FinishReason.ERROR:
        return [Rejected(Rejection.ENGINE_ERROR, done.error)]
    if done.finish_reason is FinishReason.LENGTH:
        return [Rejected(Rejection.TRUNCATED, f"cut after {len(done.token_ids)} tokens")]
    return parsed(domain, text)


def _fingerprints(tasks: pl.DataFrame) -> set[str]:
    return set(tasks.filter(pl.col("valid"))["fingerprint"].drop_nulls().to_list())
