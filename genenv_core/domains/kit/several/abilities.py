"""The optional protocols of several domains together; mostly those that each of them has.

- ReadsFiles, Repeats, JudgedWhilePlayed always: the files of all; repeatable if all are; judged
  while played if one is.
- ToolsByTask always: a task has the tools of its own domain.
- SeedData, WritesAnswers, KnowsSolution, NamesLeaks, SimulatedTools and ConstrainsEnv if all have.
- ReadsAnswers if one has; it refuses a row that two of them read.
- ReadsCalls if all have, in the same form; a domain with it does not go together with others.
- EmbedsTasks never: a request does not say its domain, and vectors of two models do not compare.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from genenv_core.domains.kit.several.joined import SeveralDomains, naming, wrapped
from genenv_core.domains.protocol import (
    ConstrainsEnv,
    KnowsSolution,
    NamesLeaks,
    PartOfSeveral,
    ReadsAnswers,
    SeedData,
    SeedExample,
    SimulatedTools,
    SolutionTurn,
    WritesAnswers,
    tools_of,
)
from genenv_core.domains.tool_calls import ReadsCalls, SaidCall
from genenv_core.errors import ConfigError
from genenv_core.ids import seed_from
from genenv_core.types import (
    Context,
    Grammar,
    JsonObject,
    Message,
    Rejected,
    Rejection,
    TaskDraft,
)


class SeveralTools(SeveralDomains):
    """ToolsByTask of several domains."""

    def tools_of(self, draft: TaskDraft) -> Sequence[JsonObject]:
        """Return the tools that the task's own domain gives it."""
        domain, own = self.own_task(draft)
        return tools_of(domain, own)


class SeveralSeedData(SeveralDomains):
    """SeedData of several domains: each gives its share, and the shares are mixed."""

    def agent_examples(self, seed: int, count: int) -> list[SeedExample]:
        """Return `count` requests with their right answers."""
        return self._examples(
            count, lambda part, n: _seeds(part).agent_examples(_of(part, seed), n)
        )

    def env_examples(self, seed: int, count: int, easy_skew: float) -> list[SeedExample]:
        """Return `count` prompts for pi_env; texts of tasks begin with their domain's name."""

        def made(part: PartOfSeveral, n: int) -> list[SeedExample]:
            examples = _seeds(part).env_examples(_of(part, seed), n, easy_skew)
            return [_named(part, messages, text) for messages, text in examples]

        return self._examples(count, made)

    def _examples(
        self, count: int, make: Callable[[PartOfSeveral, int], list[SeedExample]]
    ) -> list[SeedExample]:
        split = self.shares.split(count)
        found = {part.label: make(part, split[part.label])[::-1] for part in self.parts}
        return [found[label].pop() for label in self.shares.mixed(count)]


class SeveralAnswers(SeveralDomains):
    """WritesAnswers of several domains."""

    def answer_turns(self, draft: TaskDraft) -> list[str]:
        """Return what the agent says in each turn."""
        domain, own = self.own_task(draft)
        return cast(WritesAnswers, domain).answer_turns(own)


class SeveralSolutions(SeveralDomains):
    """KnowsSolution of several domains."""

    def solution(self, draft: TaskDraft) -> list[SolutionTurn]:
        """Return the turns of one right attempt."""
        domain, own = self.own_task(draft)
        return cast(KnowsSolution, domain).solution(own)


class SeveralLeaks(SeveralDomains):
    """NamesLeaks of several domains."""

    def leaks(self, draft: TaskDraft) -> Sequence[str]:
        """Return the texts that the request must not say."""
        domain, own = self.own_task(draft)
        return cast(NamesLeaks, domain).leaks(own)


class SeveralGrammars(SeveralDomains):
    """ConstrainsEnv of several domains."""

    def env_grammar(self, context: Context) -> Grammar:
        """Return the grammar of the base task's domain, behind the domain's name.

        Raises ConfigError for a grammar that is no regular expression: a name cannot stand before
        it.
        """
        part, base = self._part(context.base)
        history = self._history(part.label, context.history)
        own = replace(context, base=base, history=history)
        grammar = cast(ConstrainsEnv, part.domain).env_grammar(own)
        if grammar.kind != "regex":
            raise ConfigError(
                f"generation.structured: {part.label}, one of several domains, has a grammar of "
                f"kind {grammar.kind}, and the name of a domain can only stand before a regular "
                "expression: set it to false"
            )
        return Grammar("regex", f"{part.label}: ({grammar.text})")


class SeveralSimulated(SeveralDomains):
    """SimulatedTools of several domains."""

    @property
    def observation_schema(self) -> JsonObject:
        """Return the schema that all share, else one that allows what any of theirs allows."""
        schemas: list[JsonObject] = []
        for part in self.parts:
            schema = cast(SimulatedTools, part.domain).observation_schema
            schemas += [] if schema in schemas else [schema]
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}

    def tool_messages(self, draft: TaskDraft, messages: Sequence[Message]) -> list[Message] | None:
        """Return pi_env's prompt for the tools' answer to the last message."""
        domain, own = self.own_task(draft)
        return cast(SimulatedTools, domain).tool_messages(own, messages)


class SeveralRows(SeveralDomains):
    """ReadsAnswers of several domains."""

    def from_answer(self, prompt: str, ground_truth: str) -> TaskDraft | Rejected:
        """Return the task, if exactly one of the domains reads one."""
        reading = [part for part in self.parts if isinstance(part.domain, ReadsAnswers)]
        read = [
            (part, cast(ReadsAnswers, part.domain).from_answer(prompt, ground_truth))
            for part in reading
        ]
        tasks = [wrapped(part, one) for part, one in read if isinstance(one, TaskDraft)]
        if len(tasks) == 1:
            return tasks[0]
        if tasks:
            labels = " and ".join(str(one.spec["domain"]) for one in tasks)
            return Rejected(Rejection.INCONSISTENT, f"{labels} both read it: {prompt[:60]!r}")
        return next(one for _, one in read if isinstance(one, Rejected))


class SeveralCalls(SeveralDomains):
    """ReadsCalls of several domains, all of which read calls in the same form."""

    def read_calls(self, text: str) -> Sequence[SaidCall]:
        """Return the calls in the text of one turn."""
        return cast(ReadsCalls, self.parts[0].domain).read_calls(text)


IF_ALL: dict[type[Any], type[SeveralDomains]] = {
    SeedData: SeveralSeedData,
    WritesAnswers: SeveralAnswers,
    KnowsSolution: SeveralSolutions,
    NamesLeaks: SeveralLeaks,
    ConstrainsEnv: SeveralGrammars,
    SimulatedTools: SeveralSimulated,
}
"""Protocols that the joined domain has if all of its parts have them, and who provides each."""


def abilities_of(parts: Sequence[PartOfSeveral]) -> list[type[SeveralDomains]]:
    """Return the classes of what these domains can do together.

    Raises ConfigError for domains that do not go together.
    """
    domains = [part.domain for part in parts]
    found: list[type[SeveralDomains]] = [SeveralTools]
    found += [
        ability
        for protocol, ability in IF_ALL.items()
        if all(isinstance(domain, protocol) for domain in domains)
    ]
    if any(isinstance(domain, ReadsAnswers) for domain in domains):
        found.append(SeveralRows)
    if any(isinstance(domain, ReadsCalls) for domain in domains):
        forms = {getattr(type(domain), "read_calls", None) for domain in domains}
        if len(forms) > 1:
            own = " and ".join(p.label for p in parts if isinstance(p.domain, ReadsCalls))
            raise ConfigError(
                f"domains: {own} read tool calls in a form of their own, and the others do not: "
                "a turn does not say its domain, so run them apart"
            )
        found.append(SeveralCalls)
    return found


def _seeds(part: PartOfSeveral) -> SeedData:
    return cast(SeedData, part.domain)


def _of(part: PartOfSeveral, seed: int) -> int:
    return seed_from("several", part.label, seed)


def _named(part: PartOfSeveral, messages: list[Message], text: str) -> SeedExample:
    """Return a domain's example as one of several; a tool's answer names no domain."""
    if not any(isinstance(one, TaskDraft) for one in part.domain.parse(text)):
        return messages, text
    return naming(messages, part.label), f"{part.label}: {text}"
