"""Tasks and attempts of an environment that a server plays, whatever protocol it speaks.

pi_env writes the arguments of a reset. pi_agent reads the server's answer to the reset as its
request. Each turn is an action, and the server's rewards are the verdict.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from genenv_core.canonical import digest
from genenv_core.domains.kit.served.client import (
    RefusedByServer,
    RemoteServer,
    ServerAnswer,
    ServerSession,
    as_object,
)
from genenv_core.domains.kit.served.episode import EpisodeStage, ServedEpisode
from genenv_core.domains.kit.served.forms import ActionForm
from genenv_core.domains.kit.served.options import ServedOptions
from genenv_core.domains.kit.served.programs import ResetSchema, of_tasks, spelled
from genenv_core.domains.kit.served.reach import seats_of
from genenv_core.domains.parts import (
    AIM,
    TRIES,
    TooFewTasks,
    env_request,
    in_heldout,
    with_rules,
)
from genenv_core.domains.rewards import REWARD, rewards_given
from genenv_core.domains.steps import EnvironmentLost
from genenv_core.errors import ConfigError, DomainError
from genenv_core.ids import seed_from
from genenv_core.types import (
    Context,
    Grammar,
    JsonObject,
    Message,
    Rejected,
    Rejection,
    TaskDraft,
    Verdict,
)

Result = TypeVar("Result")

SLACK = 1e-9
"""How far rounding may move a sum of rewards."""

FEWER = {
    False: "data.base_tasks; of genenv domain check --base, of genenv certify --tasks",
    True: "data.validation_tasks, data.test_tasks; of genenv domain check and certify --heldout",
}
"""The settings that decide the number of tasks, by whether these are held out."""

COUNTED = 50_000
"""Most tasks of a set that `fixed_tasks` looks at to count those that are not held out."""


@dataclass(frozen=True, slots=True)
class OpenedTask:
    """What a domain keeps of a task after the server has opened it.

    `family` and `difficulty` are keys of `fields`; `answer` solves the task, '' if unknown.
    """

    fields: JsonObject
    answer: str
    spec: JsonObject


class ServedDomain(ABC):
    """An environment behind a server: the same server gives the same tasks and verdicts.

    Args:
        options: those of the domain.
        server: plays the environment.
        splits: how many tasks of its own the server has in each split; {} where it has none.
        schema: schema of the reset's arguments, where the server has no tasks of its own.
        about: what pi_env reads of the environment.

    Class attributes:
        code: raise it when the same server would give another task or another verdict.
        rules: what pi_env reads before the schema.
        widen: advice where there are too few tasks.
        seeds: how many seeds pi_env chooses among, where seeds are the tasks; else 0.
    """

    name: str
    version: str
    tools: Sequence[JsonObject]
    judged_while_played = True
    compares_prompts = True
    code: str
    rules: str
    widen: str
    seeds = 0

    def __init__(
        self,
        options: ServedOptions,
        server: RemoteServer,
        splits: Mapping[str, int],
        schema: JsonObject,
        about: str = "",
    ) -> None:
        self.options, self.repeatable = options, options.repeatable
        self._seats = seats_of(server, options.sessions, options.wait_s)
        self._splits, self._about = splits, about
        own = self._own_tasks([options.split]) if splits else schema
        self.resets = self._reads = ResetSchema(own)
        if splits:
            self._reads = ResetSchema(self._own_tasks([options.split, options.test_split]))

    @abstractmethod
    def tell(self, answer: ServerAnswer) -> str:
        """Return an answer as the agent reads it."""

    @abstractmethod
    def stage_of(self, draft: TaskDraft) -> EpisodeStage:
        """Return where attempts at this task are played, and how."""

    @abstractmethod
    def opened(self, arguments: JsonObject, answer: ServerAnswer) -> OpenedTask:
        """Return what to keep of a task, given its reset arguments and the server's answer."""

    @abstractmethod
    def reset_with(self, program: str, arguments: JsonObject) -> JsonObject:
        """Return the arguments that reset the server for this task."""

    @property
    def other_rewards(self) -> Collection[str] | None:
        """Return the names of the rewards beside the reward; None: all that an answer has."""
        return self.options.other_rewards

    def base_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return `count` tasks that pi_env could write; asks the server for each.

        Raises ConfigError where there are fewer.
        """
        return self._drawn("base", seed, count)

    def heldout_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return `count` tasks of the held-out split, or without one those that a hash holds out.

        Raises ConfigError where there are fewer.
        """
        return self._drawn("heldout", seed, count)

    def open_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return `count` tasks that are not held out, with repetitions where there are fewer.

        Raises ConfigError where the server opens no task.
        """
        made: list[TaskDraft] = []
        for arguments in self._candidates(random.Random(seed), heldout=False):
            task = None if self.is_heldout(arguments) else self._task(arguments)
            if isinstance(task, TaskDraft):
                made.append(task)
            if len(made) == count:
                break
        if not made:
            raise ConfigError(f"the server takes nothing under {self.resets.text}")
        return [made[place % len(made)] for place in range(count)]

    def env_messages(self, context: Context) -> list[Message]:
        """Return pi_env's prompt: the schema, the agent's success and a program to vary."""
        rules = ""
        if self.options.explain:
            base, new = self._shown
            parts = [self.rules, self.resets.text, self._about, AIM, env_request(0.9, base), new]
            rules = "\n".join(filter(None, parts))
        return with_rules(rules, env_request(context.history.success_rate, context.base.program))

    def env_grammar(self, context: Context) -> Grammar:
        """Return the schema of the reset arguments."""
        del context
        return Grammar("json", self.resets.text)

    def parse(self, text: str) -> list[TaskDraft | Rejected]:
        """Return the task that the text spells, or the reason why it spells no task.

        Raises DomainError where the server is lost: that says nothing about the text.
        """
        arguments = self._reads.read(text.strip())
        if isinstance(arguments, str):
            return [Rejected(Rejection.UNPARSEABLE, arguments)]
        if self.is_heldout(arguments):
            return [Rejected(Rejection.IN_HELDOUT, f"{spelled(arguments)} is held out")]
        return [self._task(arguments)]

    def agent_messages(self, draft: TaskDraft) -> list[Message]:
        """Return the instructions and the reset's text; the chat template shows the tools."""
        return with_rules(self.options.instructions, draft.prompt)

    def episode(self, draft: TaskDraft, seed: int) -> ServedEpisode:
        """Return a fresh attempt; the task's arguments decide everything, and `seed` nothing.

        Raises DomainError for a broken spec.
        """
        del seed
        arguments = as_object(draft.spec.get("reset"))
        if not arguments:
            raise DomainError(f"domain {self.name}: a spec without reset: {str(draft.spec)[:80]}")
        asked = self.reset_with(draft.program, arguments)
        return ServedEpisode(self.stage_of(draft), asked, draft.prompt)

    def score(self, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        """Return the verdict from the rewards that a transcript stores.

        Raises DomainError for a transcript that the server did not play, and for a reward outside
        of `reward_range`.
        """
        del draft
        given = [one[REWARD] for one in rewards_given(messages)]
        values = [value for value in given if value is not None]
        if not values:
            return Verdict(0.0, False, "no reward before the end")
        found = {"last": values[-1], "sum": sum(values), "max": max(values)}[self.options.reward]
        low, high = self.options.reward_range
        reward = (found - low) / (high - low)
        if not -SLACK <= reward <= 1 + SLACK:
            raise DomainError(
                f"domain {self.name}: the reward {found:g} of an attempt is outside of "
                f"domain.options.reward_range [{low:g}, {high:g}]: give the worst and the best "
                f"reward of an attempt (domain.options.reward is {self.options.reward!r})"
            )
        reward = min(max(reward, 0.0), 1.0)
        success = reward >= self.options.success_at - SLACK
        return Verdict(reward, success, "" if success else f"reward {found:g}")

    def trivial_answers(self, draft: TaskDraft) -> list[str]:
        """Return an empty text, a number, and the request."""
        return ["", "0", draft.prompt]

    def fixed_tasks(self) -> int | None:
        """Return how many tasks pi_env chooses among; None where it writes their arguments.

        Of more than `COUNTED` tasks it counts the first `COUNTED`, and scales their share up.
        """
        if self._splits:
            split = self.options.split
            chosen = [
                {"index": i, "split": split} for i in range(min(self._splits[split], COUNTED))
            ]
            size = self._splits[split]
        elif self.seeds:
            chosen = [{"seed": seed} for seed in range(min(self.seeds, COUNTED))]
            size = self.seeds
        else:
            return None
        return round(size * sum(not self.is_heldout(one) for one in chosen) / len(chosen))

    def is_heldout(self, arguments: JsonObject) -> bool:
        """Return whether the task of these reset arguments is for evaluation alone."""
        if self.options.test_split in self._splits:
            return arguments["split"] == self.options.test_split
        return in_heldout(spelled(arguments))

    def playing(self, form: ActionForm, *, may_stop: bool, remedy: str) -> EpisodeStage:
        """Return a stage with this domain's sessions, and with the arguments of EpisodeStage."""
        seats, others = self._seats, self.other_rewards
        return EpisodeStage(seats, form, self.tell, self.repeatable, may_stop, remedy, others)

    def version_of(self, *known: object) -> str:
        """Return the domain's version, from what the server says of itself and the options."""
        return f"{self.code}-{digest([*known, self.options.meaning])[:16]}"

    def asked(self, ask: Callable[[ServerSession], Result]) -> Result:
        """Return the result of one question, in a session that is free; raises as Seats does."""
        asker = _Asker()
        try:
            return self._seats.asked(asker, lambda session, _: ask(session), shared=self.repeatable)
        finally:
            self._seats.leave(asker)

    @cached_property
    def _shown(self) -> list[str]:
        """Return the two programs that pi_env's rules show."""
        return [task.program for task in self.open_tasks(seed_from(self.name, "shown"), 2)]

    def _own_tasks(self, splits: Sequence[str]) -> JsonObject:
        """Return the schema of programs that name the server's own tasks in these splits."""
        if splits[0] not in self._splits:
            raise ConfigError(
                f"domain.options.split {splits[0]!r}: the server has the splits "
                f"{', '.join(self._splits)}"
            )
        return of_tasks({name: self._splits[name] for name in splits if name in self._splits})

    def _drawn(self, what: str, seed: int, count: int) -> list[TaskDraft]:
        heldout = what == "heldout"
        rng = random.Random(seed_from(self.name, what, seed))
        drafts: dict[str, TaskDraft] = {}
        refused = ""
        for arguments in self._candidates(rng, heldout=heldout, count=count):
            if len(drafts) == count:
                break
            program = spelled(arguments)
            if program in drafts or self.is_heldout(arguments) != heldout:
                continue
            made = self._task(arguments)
            if isinstance(made, TaskDraft):
                drafts[program] = made
            else:
                refused = f", for {made.detail} ({program})"
        if len(drafts) < count:
            raise TooFewTasks(
                f"the server has only about {len(drafts)} {what} tasks{refused}; {count} are "
                f"wanted: {self.widen}, or ask for fewer ({FEWER[heldout]})",
                len(drafts),
            )
        return list(drafts.values())

    def _candidates(
        self, rng: random.Random, *, heldout: bool, count: int = 100
    ) -> Iterator[JsonObject]:
        """Return arguments to try: all tasks of a split in a random order, or random draws."""
        options = self.options
        apart = heldout and options.test_split in self._splits
        split = options.test_split if apart else options.split
        if not self._splits:
            return (self.resets.draw(rng) for _ in range(TRIES + 50 * count))
        order = rng.sample(range(self._splits[split]), self._splits[split])
        return ({"index": index, "split": split} for index in order)

    def _task(self, arguments: JsonObject) -> TaskDraft | Rejected:
        """Return the task of reset arguments, as the server opens it.

        Raises DomainError where the server is lost, and ConfigError for a difficulty that is no
        number.
        """
        program, options = spelled(arguments), self.options
        asked = self.reset_with(program, arguments)
        try:
            answer = self.asked(lambda session: session.reset(asked))
        except RefusedByServer as error:
            return Rejected(Rejection.OUT_OF_RANGE, f"the server refuses it: {error.message}")
        except EnvironmentLost as error:
            raise DomainError(
                f"domain {self.name}: no task was made of {program}: {error}"
            ) from error
        prompt = self.tell(answer)
        if answer.done or not prompt:
            why = "the attempt is over at once" if answer.done else "the reset says nothing"
            return Rejected(Rejection.INCONSISTENT, why)
        task = self.opened(arguments, answer)
        difficulty = task.fields.get(options.difficulty or "", 1.0)
        if not isinstance(difficulty, int | float):
            raise ConfigError(
                f"domain.options.difficulty {options.difficulty!r}: {difficulty!r} is no number"
            )
        return TaskDraft(
            prompt=prompt,
            spec=task.spec,
            ground_truth=task.answer,
            program=program,
            family=str(task.fields.get(options.family or "", "task")),
            difficulty=float(difficulty),
            fingerprint=program,
        )


class _Asker:
    """The owner of a session for one question."""
