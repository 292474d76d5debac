"""The Domain protocol: everything genenv needs to know about a kind of task.

A domain is stateless and deterministic: the same arguments give the same answer in every process.
It never sees token ids, models or storage. After `Domain` come the protocols that it may also have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from genenv_core.domains.shares import Shares
from genenv_core.types import (
    Context,
    Grammar,
    JsonObject,
    Message,
    Observation,
    Rejected,
    TaskDraft,
    Verdict,
)


class Episode(Protocol):
    """One attempt in progress.

    `step` may raise anything. The agent then sees the error as an observation, and the step counts
    as not having happened, so it must leave the episode unchanged. With `tools.execution: workers`,
    steps of several episodes run side by side, and those of one episode one after the other. The
    driver gives up a step that takes too long. It then makes the episode anew and repeats the
    earlier actions, unless the domain is not repeatable (`Repeats`).
    """

    def step(self, action: str) -> Observation:
        """Return the environment's answer to the agent's text of this turn."""
        ...


class Domain(Protocol):
    """A kind of task. `genenv_core.domains.registry` finds genenv's own and those of others.

    `version` is part of every stage key that uses the domain: raise it when the same program would
    give another task or another verdict.
    """

    name: str
    version: str
    tools: Sequence[JsonObject]

    def base_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return `count` distinct base tasks, the data that the game starts from."""
        ...

    def heldout_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return `count` distinct tasks for evaluation only, disjoint from `base_tasks`."""
        ...

    def env_messages(self, context: Context) -> list[Message]:
        """Return pi_env's prompt for this context."""
        ...

    def parse(self, text: str) -> list[TaskDraft | Rejected]:
        """Return the tasks in one generation, in order, and a `Rejected` for text without a task.

        It never raises on bad text and never returns an empty list.
        """
        ...

    def agent_messages(self, draft: TaskDraft) -> list[Message]:
        """Return the messages that open an attempt at this task."""
        ...

    def episode(self, draft: TaskDraft, seed: int) -> Episode:
        """Return a fresh attempt; `seed` decides any randomness of its environment.

        With `tools.execution: workers`, episodes open in a worker, within the time limit. Otherwise
        a slow opening holds up all attempts.
        """
        ...

    def score(self, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        """Return the verdict on a transcript; pure, so stored traces can be scored again.

        Messages may name their calls (`tool_calls`, `tool_call_id`); judge what they say.
        """
        ...

    def trivial_answers(self, draft: TaskDraft) -> list[str]:
        """Return answers that no sound spec accepts: empty, constant, an echo of the prompt."""
        ...


@runtime_checkable
class ReadsFiles(Protocol):
    """A domain that reads files, such as word lists or a database.

    The content of the files is part of every stage key that uses the domain; their paths are not.
    """

    files: Sequence[str | Path]


@runtime_checkable
class Repeats(Protocol):
    """A domain that says whether its attempts can be repeated; all other domains can.

    Repeatable means that equal seeds and equal actions give equal answers. In a domain that is not
    repeatable, genenv repeats nothing inside of an attempt: an attempt whose step takes too long,
    or that loses its environment, fails with the environment's cause.
    """

    repeatable: bool


def repeatable(domain: Domain) -> bool:
    """Return whether equal seeds and actions get equal answers."""
    return domain.repeatable if isinstance(domain, Repeats) else True


@runtime_checkable
class BeginsAnew(Protocol):
    """A domain that says whether its episodes begin the conversation anew (`Observation.anew`).

    Such a domain's own code has to answer: pi_env in the place of the tools would write answers and
    no prompts. Players outside of genenv cannot get the prompts of a sequence either.
    """

    begins_anew: bool


def begins_anew(domain: Domain) -> bool:
    """Return whether a domain says that its episodes begin the conversation anew."""
    return isinstance(domain, BeginsAnew) and domain.begins_anew


@runtime_checkable
class JudgedWhilePlayed(Protocol):
    """A domain whose environment judges an attempt while genenv plays it.

    Its answers carry rewards (`genenv_core.domains.rewards`), from which `score` makes the verdict.
    A transcript that nobody played has no verdict; a caller that wants one plays it first.
    """

    judged_while_played: bool


def judged_while_played(domain: Domain) -> bool:
    """Return whether a verdict needs the rewards of a played attempt."""
    return isinstance(domain, JudgedWhilePlayed) and domain.judged_while_played


@runtime_checkable
class ChoosesTasks(Protocol):
    """A domain that may have a fixed set of tasks: pi_env then chooses among them, and writes none.

    Such a run shows a curriculum over that set, and its results say so.
    """

    def fixed_tasks(self) -> int | None:
        """Return how many tasks a run may train on; None where pi_env writes tasks."""
        ...


@runtime_checkable
class ComparesPrompts(Protocol):
    """A domain of tasks from elsewhere, where programs that differ may be the same task.

    genenv rejects a new task as contaminated when its prompt repeats that of a held-out one.
    """

    compares_prompts: bool


def compares_prompts(domain: Domain) -> bool:
    """Return whether genenv compares a new task's prompt, too, with those of held-out tasks."""
    return isinstance(domain, ComparesPrompts) and domain.compares_prompts


FILES_REMEDY = "name it from the domain's own file: Path(__file__).parent / NAME"
"""The remedy for a path in `files` that cannot be read."""


@runtime_checkable
class ToolsByTask(Protocol):
    """A domain whose tasks have tools of their own, beside those in `Domain.tools`."""

    def tools_of(self, draft: TaskDraft) -> Sequence[JsonObject]:
        """Return all tools of this task, in OpenAI's form."""
        ...


def tools_of(domain: Domain, draft: TaskDraft) -> Sequence[JsonObject]:
    """Return the tools that the agent has in this task."""
    return domain.tools_of(draft) if isinstance(domain, ToolsByTask) else domain.tools


SeedExample = tuple[list[Message], str]
"""A prompt in chat messages and the text that the policy should answer with."""


@runtime_checkable
class SeedData(Protocol):
    """A domain that can write its own supervised examples.

    The caller may rely on: equal arguments give equal lists; prompts look as `agent_messages` and
    `env_messages` build them; nothing equals a task that `heldout_tasks` could ever return.
    """

    def agent_examples(self, seed: int, count: int) -> list[SeedExample]:
        """Return `count` requests with their right answers, mostly easy ones."""
        ...

    def env_examples(self, seed: int, count: int, easy_skew: float) -> list[SeedExample]:
        """Return `count` prompts for pi_env with valid generations.

        `easy_skew` in [0, 1]: 0 = difficulty uniform, 1 = nearly all of the lowest difficulty.
        """
        ...


@runtime_checkable
class WritesAnswers(Protocol):
    """A domain whose tasks have one reference answer that the agent could write word for word.

    The caller may rely on: an attempt in which the agent says just this ends by itself and is a
    success. Then the probability of that attempt is known without sampling.
    """

    def answer_turns(self, draft: TaskDraft) -> list[str]:
        """Return what the agent says in each turn, spelled as `agent_examples` spells it."""
        ...


@dataclass(frozen=True, slots=True)
class SolutionTurn:
    """What an agent that knows the answer says in one turn.

    `reveals` are the parts of the answer that become known in this turn: the agent works them out,
    or the tools answer the right call with them. They are words or numbers that the request does
    not say, and that nothing may say before this turn.
    """

    says: str
    reveals: tuple[str, ...] = ()


@runtime_checkable
class KnowsSolution(Protocol):
    """A domain that can attempt its own tasks, so that a task can be played before it is given.

    The caller may rely on: an attempt in which the agent says just this ends with the last turn and
    is a success.
    """

    def solution(self, draft: TaskDraft) -> list[SolutionTurn]:
        """Return the turns of one right attempt; raises DomainError for a broken spec."""
        ...


def right_turns(domain: Domain, draft: TaskDraft) -> list[str]:
    """Return the agent's text in each turn of a right attempt; [] where no domain knows one.

    Of several domains one may know a right attempt where another does not.
    """
    domain, draft = own_task(domain, draft)
    if isinstance(domain, KnowsSolution):
        return [turn.says for turn in domain.solution(draft)]
    return list(domain.answer_turns(draft)) if isinstance(domain, WritesAnswers) else []


@runtime_checkable
class NamesLeaks(Protocol):
    """A domain that names the texts that would give the answer of a task away.

    Extractive questions and multiple choice say their answer in the request by their nature; other
    requests give it away in other words.
    """

    def leaks(self, draft: TaskDraft) -> Sequence[str]:
        """Return the texts that the request must not say; empty when nothing gives it away."""
        ...


@runtime_checkable
class EmbedsTasks(Protocol):
    """A domain with an embedding of its requests, which says how alike two tasks are.

    Without it, the words of the programs decide: see `genenv_core.epoch.writing.likeness`.
    Paraphrases share few words, so a domain of free text may bring a model that knows better.
    """

    def embed(self, prompts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return a vector of finite numbers for each request, all of one length.

        genenv calls it once an epoch with the new requests, the earlier ones and those of the test
        set.
        """
        ...


@runtime_checkable
class ReadsAnswers(Protocol):
    """A domain that makes tasks from a prompt and its answer, as data in verl's style has them.

    Without it, base tasks come only from programs, the texts that pi_env writes.
    """

    def from_answer(self, prompt: str, ground_truth: str) -> TaskDraft | Rejected:
        """Return the task, or why the text spells no task; never raises on bad text."""
        ...


@runtime_checkable
class ConstrainsEnv(Protocol):
    """A domain that has a schema or a grammar for pi_env's generations.

    The caller may rely on: `parse` can read every text that the grammar allows. The task may still
    be out of range, inconsistent or a duplicate.
    """

    def env_grammar(self, context: Context) -> Grammar:
        """Return the grammar of a generation for this context."""
        ...


@runtime_checkable
class SimulatedTools(Protocol):
    """A domain that lets a language model write observations in place of its tools.

    `observation_schema` is the JSON schema of pi_env's answer: an object for one observation. Its
    field `content` is the text that the agent sees; the optional field `name` is the tool's name.
    An engine that can enforce a schema does so. An answer that does not fit becomes a failed
    observation.
    """

    observation_schema: JsonObject

    def tool_messages(self, draft: TaskDraft, messages: Sequence[Message]) -> list[Message] | None:
        """Return pi_env's prompt for the tools' answer to the last message.

        None when the transcript needs no answer, which ends the episode.
        """
        ...


@dataclass(frozen=True, slots=True)
class PartOfSeveral:
    """One of several domains: its name in the run, its name as in `domain.name`, and the domain."""

    label: str
    name: str
    domain: Domain


@runtime_checkable
class JoinsDomains(Protocol):
    """A domain made of several others; each task's own domain plays it."""

    parts: Sequence[PartOfSeveral]
    shares: Shares

    def own_task(self, draft: TaskDraft) -> tuple[Domain, TaskDraft]:
        """Return the domain that a task is of, and the task as that domain made it."""
        ...


def fixed_sets(name: str, domain: Domain) -> dict[str, int]:
    """Return the size of each fixed set, by its domain's name in the view `task_domains`.

    Args:
        name: the domain's name in the configuration.
        domain: the domain, or one made of several.
    """
    parts = (
        domain.parts if isinstance(domain, JoinsDomains) else [PartOfSeveral(name, name, domain)]
    )
    counted = {
        part.label: part.domain.fixed_tasks()
        for part in parts
        if isinstance(part.domain, ChoosesTasks)
    }
    return {label: count for label, count in counted.items() if count is not None}


def shares_of(domain: Domain) -> Shares:
    """Return the share of each domain of a run."""
    return domain.shares if isinstance(domain, JoinsDomains) else Shares()


def own_task(domain: Domain, draft: TaskDraft) -> tuple[Domain, TaskDraft]:
    """Return the domain that a task is of, and the task as that domain made it."""
    return domain.own_task(draft) if isinstance(domain, JoinsDomains) else (domain, draft)
