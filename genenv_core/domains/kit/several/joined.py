"""One domain made of several: the domain of a task plays, judges and shows it.

Every text says which domain it is of. A program, and so a text of pi_env, begins with the name of
its domain and a colon (`desk: + 3 bolts 4`). A family begins with the name and a slash (`desk/k3`).
A spec is an object with the name and the domain's own spec. So a stored task alone says its domain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from genenv_core.canonical import digest
from genenv_core.domains.kit.answers import without_thought
from genenv_core.domains.protocol import (
    Domain,
    Episode,
    PartOfSeveral,
    ReadsFiles,
    begins_anew,
    judged_while_played,
    repeatable,
)
from genenv_core.domains.registry import options_in_keys
from genenv_core.domains.shares import Shares
from genenv_core.errors import DomainError
from genenv_core.ids import seed_from
from genenv_core.types import (
    AgentHistory,
    Context,
    JsonObject,
    Message,
    Rejected,
    Rejection,
    TaskDraft,
    Verdict,
)

Draw = Callable[[Domain, int, int], Sequence[TaskDraft]]

_NAMED = re.compile(r"\s*([\w-]+):[ \t]*")


class SeveralDomains:
    """The joined domain; `abilities` adds its optional protocols."""

    name = "several"

    def __init__(
        self, parts: Sequence[PartOfSeveral], shares: Shares, options: Mapping[str, Any]
    ) -> None:
        """Join the parts; the version includes `options`, from which they were made."""
        self.parts, self.shares = tuple(parts), shares
        self._by_label = {part.label: part for part in parts}
        named = [[part.label, part.name, part.domain.version] for part in parts]
        self.version = digest([named, options_in_keys(self.name, options)])[:12]
        self.files = [
            file
            for part in parts
            if isinstance(part.domain, ReadsFiles)
            for file in part.domain.files
        ]
        self.repeatable = all(repeatable(part.domain) for part in parts)
        self.begins_anew = any(begins_anew(part.domain) for part in parts)
        self.judged_while_played = any(judged_while_played(part.domain) for part in parts)
        self.tools: Sequence[JsonObject] = ()
        """Empty: each task has the tools of its own domain."""

    def base_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return `count` distinct base tasks, from each domain its share."""
        return self._drawn(lambda domain, s, n: domain.base_tasks(s, n), seed, count, 1)

    def heldout_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return `count` distinct held-out tasks, from each domain its share.

        A domain has at least half of an equal share, so that its own result says something.
        """
        least = max(1, count // (2 * len(self.parts)))
        return self._drawn(lambda domain, s, n: domain.heldout_tasks(s, n), seed, count, least)

    def env_messages(self, context: Context) -> list[Message]:
        """Return the prompt of the base task's domain, with how the text has to begin."""
        part, base = self._part(context.base)
        history = self._history(part.label, context.history)
        own = replace(context, base=base, history=history)
        return naming(part.domain.env_messages(own), part.label)

    def parse(self, text: str) -> list[TaskDraft | Rejected]:
        """Return the tasks in a text of a domain's name and what that domain parses."""
        said = without_thought(text)
        found = _NAMED.match(said)
        part = self._by_label.get(found[1]) if found else None
        if found is None or part is None:
            begins = " or ".join(f"'{label}: '" for label in self._by_label)
            return [Rejected(Rejection.UNPARSEABLE, f"names no domain: begin with {begins}")]
        own = part.domain.parse(said[found.end() :])
        return [wrapped(part, one) if isinstance(one, TaskDraft) else one for one in own]

    def agent_messages(self, draft: TaskDraft) -> list[Message]:
        """Return the messages that open an attempt in the task's own domain."""
        domain, own = self.own_task(draft)
        return domain.agent_messages(own)

    def episode(self, draft: TaskDraft, seed: int) -> Episode:
        """Return a fresh attempt in the task's own domain."""
        domain, own = self.own_task(draft)
        return domain.episode(own, seed)

    def score(self, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        """Return the verdict of the task's own domain."""
        domain, own = self.own_task(draft)
        return domain.score(own, messages)

    def trivial_answers(self, draft: TaskDraft) -> list[str]:
        """Return the trivial answers of the task's own domain, and the program with its name."""
        domain, own = self.own_task(draft)
        return [*domain.trivial_answers(own), draft.program]

    def own_task(self, draft: TaskDraft) -> tuple[Domain, TaskDraft]:
        """Return the domain of a task, and the task as that domain made it.

        Raises DomainError for a spec of no domain here.
        """
        part, own = self._part(draft)
        return part.domain, own

    def _part(self, draft: TaskDraft) -> tuple[PartOfSeveral, TaskDraft]:
        part = self._by_label.get(str(draft.spec.get("domain")))
        if part is None or not isinstance(draft.spec.get("task"), dict):
            raise DomainError(
                f"several: the spec {str(draft.spec)[:120]} names none of "
                f"{', '.join(self._by_label)} with a task; it was not made by these domains"
            )
        own = replace(
            draft,
            spec=draft.spec["task"],
            program=draft.program.removeprefix(f"{part.label}: "),
            family=draft.family.removeprefix(f"{part.label}/"),
            fingerprint=draft.fingerprint.removeprefix(f"{part.domain.name}: "),
        )
        return part, own

    def _history(self, label: str, history: AgentHistory) -> AgentHistory:
        """Return how the agent does in one domain; the whole history where it tells none apart."""
        if history.by_domain:
            return history.by_domain.get(label, AgentHistory())
        own = {
            family.removeprefix(f"{label}/"): counts
            for family, counts in history.by_family.items()
            if self.shares.domain_of(family) == label
        }
        return AgentHistory(history.success_rate, own)

    def _drawn(self, draw: Draw, seed: int, count: int, least: int) -> list[TaskDraft]:
        """Return distinct tasks of all domains; two of the same domain may draw equal ones."""
        split, taken = self.shares.split(count, least), set[str]()
        found: dict[str, list[TaskDraft]] = {}
        for part in self.parts:
            wanted, own = split[part.label], list[TaskDraft]()
            # More where another domain took some of them already.
            for asked in (wanted, wanted + len(taken)):
                if len(own) < wanted:
                    drawn = draw(part.domain, seed_from("several", part.label, seed), asked)
                    tasks = [wrapped(part, one) for one in drawn]
                    own = [one for one in tasks if one.fingerprint not in taken][:wanted]
            if len(own) < wanted:
                raise DomainError(
                    f"several: {part.label} has {len(own)} tasks that no other domain has, of "
                    f"{wanted} wanted: lower the number of tasks, or give it other options"
                )
            taken |= {one.fingerprint for one in own}
            found[part.label] = own[::-1]
        return [found[label].pop() for label in self.shares.mixed(count, least)]


def wrapped(part: PartOfSeveral, own: TaskDraft) -> TaskDraft:
    """Return a domain's task as a task of the joined domain.

    Where one domain stands there twice, equal tasks of the two stay equal: they are duplicates.
    """
    return replace(
        own,
        spec={"domain": part.label, "task": own.spec},
        program=f"{part.label}: {own.program}",
        family=f"{part.label}/{own.family}",
        fingerprint=f"{part.domain.name}: {own.fingerprint}",
    )


def naming(messages: Sequence[Message], label: str) -> list[Message]:
    """Return a prompt of pi_env with a sentence on the domain's name that the text begins with."""
    *before, last = messages
    named = last.copy()
    named["content"] = f"{last['content']}\nBegin with `{label}: `."
    return [*before, named]
