"""Asks pi_env or a teacher for tasks, and turns what they write into tasks or rejected rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from genenv_core.algorithm.admission import known as known_task
from genenv_core.canonical import canonical_json
from genenv_core.domains.protocol import Domain, shares_of
from genenv_core.epoch.rows import Output, Progress, SeedFor, draft_columns, frame, of_source
from genenv_core.epoch.trouble import NO_TASK
from genenv_core.epoch.writing.contamination import HeldoutPrompts
from genenv_core.epoch.writing.resembling import resemblances
from genenv_core.errors import DomainError
from genenv_core.ids import task_id
from genenv_core.play.asked import env_prompt, parsed
from genenv_core.play.certificate import Check, certify
from genenv_core.play.chat import ChatFormat
from genenv_core.types import (
    HELDOUT,
    Completion,
    Context,
    FinishReason,
    Message,
    Rejected,
    Rejection,
    SampleRequest,
    TaskDraft,
)

SHOWN = 120
"""Characters of a rejected text that a message shows."""

SURE = 3
"""If a domain's code raises an error over each of so many tasks, the tasks are not to blame."""


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """One request to pi_env or a teacher: a context's messages, and a seed of 63 bits."""

    context: Context
    messages: Sequence[Message]
    seed: int


@dataclass(frozen=True, slots=True)
class TaskText:
    """A text that may hold tasks, and the tokens read and written for it; 0 if unknown."""

    text: str
    finish_reason: FinishReason
    prompt_tokens: int = 0
    tokens: int = 0
    error: str = ""


def sampled_text(chat: ChatFormat, request: SampleRequest, done: Completion) -> TaskText:
    """Return what an engine sampled, as text."""
    return TaskText(
        chat.decode(done.token_ids),
        done.finish_reason,
        prompt_tokens=len(request.prompt_ids),
        tokens=len(done.token_ids),
        error=done.error,
    )


def drafts_of(domain: Domain, written: TaskText) -> list[TaskDraft | Rejected]:
    """Return what a domain makes of a text; a failed or truncated one holds no task."""
    if written.finish_reason is FinishReason.ERROR:
        return [Rejected(Rejection.ENGINE_ERROR, written.error)]
    if written.finish_reason is FinishReason.LENGTH:
        return [Rejected(Rejection.TRUNCATED, f"cut after {written.tokens} tokens")]
    return parsed(domain, written.text)


class Intake:
    """The rows of `tasks` while they grow; it admits a draft as a task, or rejects it.

    `data` are the run's data tasks, `recent` the tasks of earlier epochs. The intake rejects a task
    that equals a held-out one of `data` or any of `recent`; where the domain compares prompts, also
    one that repeats a held-out prompt. While the `guard` is on, it rejects a task with a flaw; the
    certificate is a row either way. Ids come from epoch and scope.
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
        self._data, self._recent = data, recent
        self._heldout = _fingerprints(of_source(data, *HELDOUT))
        self._prompts = HeldoutPrompts(domain, data)
        self._history = _fingerprints(recent)
        self._taken: set[str] = set()
        self._shares = shares_of(domain)
        self._of_domain = Counter[str]()
        self._rows: list[dict[str, Any]] = []
        self._certificates: list[dict[str, Any]] = []
        self._flaws = list[Check | None]()  # for each certified task, why it was rejected

    @property
    def valid(self) -> int:
        """Return the number of admitted tasks."""
        return len(self._taken)

    def add(self, item: TaskDraft | Rejected, **columns: Any) -> None:
        """Add the row of a draft, or of a text without one."""
        ident = task_id(self.epoch, self.scope, len(self._rows))
        rejected = self._refused(item, ident) if isinstance(item, TaskDraft) else item
        if isinstance(item, TaskDraft) and rejected is None:
            self._taken.add(item.fingerprint)
            self._of_domain[self._shares.domain_of(item.family)] += 1
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
        """Return why the draft is no task, or None; store the certificate of a new one."""
        old = known_task(draft, batch=self._taken, history=self._history, heldout=self._heldout)
        old = old or self._prompts.refused(draft)
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
            self._flaws.append(None)
            return None
        self._flaws.append(flaw)
        return Rejected(Rejection(flaw.flaw.value), flaw.detail)

    def batches(
        self, wanted: Sequence[Context], enough: int, seed_for: SeedFor, progress: Progress
    ) -> Generator[list[TaskRequest]]:
        """Yield batches of requests until `enough` tasks are admitted or `wanted` is used up.

        A batch asks for as many tasks as are missing. The caller adds what its texts hold before it
        takes the next one. Each of several domains has its share of the requests. The place in
        `wanted` decides a seed. Calls `progress` before each batch.
        """
        split = self._shares.split(enough)
        left = list(enumerate(wanted))
        while batch := self._next(left, split):
            progress(self.valid, enough, "tasks")
            yield [
                TaskRequest(
                    context, env_prompt(self.domain, context), seed_for("generation", place)
                )
                for place, context in batch
            ]
            asked = {place for place, _ in batch}
            left = [one for one in left if one[0] not in asked]

    def _next(
        self, left: Sequence[tuple[int, Context]], split: Mapping[str, int]
    ) -> list[tuple[int, Context]]:
        """Return the first places of each domain, as many as it lacks tasks."""
        missing = {name: count - self._of_domain[name] for name, count in split.items()}
        batch: list[tuple[int, Context]] = []
        for place, context in left:
            domain = self._shares.domain_of(context.base.family)
            if missing[domain] > 0:
                missing[domain] -= 1
                batch.append((place, context))
        return batch

    def output(
        self, generations: Sequence[dict[str, Any]] = (), asked: Iterable[Context] = ()
    ) -> Output:
        """Return the tasks, the generations that they are from, and the contexts of the requests.

        A context with several generations is one row. Raises DomainError where the domain's code
        raised an error over each of the tasks, `SURE` or more. A stored epoch without tasks would
        blame pi_env, and would stay after someone has mended the code or its machine.
        """
        raised = [flaw.detail for flaw in self._flaws if flaw is not None and flaw.raised]
        if len(raised) == len(self._flaws) >= SURE:
            raise DomainError(
                f"domain {self.domain.name}: its own code fails for each of the {len(raised)} "
                f"tasks of epoch {self.epoch}, for the last one: {raised[-1]}; mend it (`genenv "
                "domain check` says where) or what it needs, and run the same command again"
            )
        rejected = Counter(row["rejection"] for row in self._rows if not row["valid"])
        counts = {"generated": len(self._rows), "valid": self.valid}
        facts: dict[str, Any] = {**counts, "rejected": dict(rejected)}
        if not self.valid:
            facts[NO_TASK] = self._no_task(rejected)
        return Output(
            {
                "tasks": frame("tasks", self._placed()),
                "certificates": frame("certificates", self._certificates),
                "contexts": frame("contexts", self._contexts(asked)),
                "generations": frame("generations", list(generations)),
            },
            facts,
        )

    def _placed(self) -> list[dict[str, Any]]:
        """Return the rows with the earlier task and the test task that each resembles most."""
        found = resemblances(self.domain, self._rows, self._data, self._recent)
        return [row | near for row, near in zip(self._rows, found, strict=True)]

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
        """Return a sentence on why no row is a task: the commonest reason, with its first text."""
        ((reason, count),) = rejected.most_common(1)
        row = next(row for row in self._rows if row["rejection"] == reason)
        text = str(row.get("generation_text") or row.get("program") or "")[:SHOWN]
        detail = str(row["rejection_detail"])[:SHOWN]
        return (
            f"epoch {self.epoch} has no valid task: {len(self._rows)} rejected, {count} of them as "
            f"{reason}, for example {text!r}" + (f" ({detail})" if detail else "")
        )


def _fingerprints(tasks: pl.DataFrame) -> set[str]:
    return set(tasks.filter(pl.col("valid"))["fingerprint"].drop_nulls().to_list())
