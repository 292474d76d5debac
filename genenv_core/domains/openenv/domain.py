"""The domain `openenv`: tasks and attempts of an environment behind an OpenEnv server.

pi_env writes the arguments of a reset; what the server then says is the request that pi_agent
reads. Each turn is an action, and the server's rewards are the verdict.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from typing import TypeVar

from genenv_core.domains.kit.tools import told
from genenv_core.domains.openenv.actions import LIST_TOOLS, McpForm, form_of, takes_mcp
from genenv_core.domains.openenv.client import (
    OpenEnvServer,
    RefusedByServer,
    ServerAnswer,
    ServerSession,
    as_object,
)
from genenv_core.domains.openenv.episode import EpisodeStage, OpenEnvEpisode
from genenv_core.domains.openenv.facts import facts_of
from genenv_core.domains.openenv.options import OpenEnvOptions
from genenv_core.domains.openenv.process import ServerProcess
from genenv_core.domains.openenv.resets import (
    MOST_SEED,
    ResetSchema,
    of_seeds,
    of_tasks,
    spelled,
)
from genenv_core.domains.openenv.sessions import Seats
from genenv_core.domains.openenv.wording import tell
from genenv_core.domains.parts import AIM, TRIES, env_request, in_heldout, with_rules
from genenv_core.domains.rewards import REWARD, rewards_given
from genenv_core.domains.steps import EnvironmentLost
from genenv_core.errors import ConfigError, DomainError
from genenv_core.ids import seed_from
from genenv_core.storage.canonical import digest
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

CODE = "1"
"""Raised when the same server would give another task or another verdict."""

SLACK = 1e-9
"""What a sum of rewards may be off."""

RULES = (
    "You choose the tasks of an environment. A task is one JSON object, the arguments of its "
    "reset, under this schema:"
)


class OpenEnvDomain:
    """An environment behind a server: the same server gives the same tasks and verdicts."""

    name = "openenv"
    judged_while_played = True

    def __init__(self, options: OpenEnvOptions) -> None:
        """Ask the server what it is.

        Raises ConfigError where it is not there, or where nothing can be trained on in it.
        """
        self.options, self.repeatable = options, options.repeatable
        self._hidden = (*options.hidden, *filter(None, [options.answer]))
        place = options.serve or options.address
        served = None if options.serve is None else options.variables
        server = _server(place, served, options.timeout_s, options.wait_s)
        self._seats = _seats(server, options.sessions, options.wait_s)
        facts = facts_of(server, tasks=options.reset is None)
        self._about, self._splits = facts.about, facts.splits
        self.resets = self._reads = ResetSchema(options.reset or self._own_tasks([options.split]))
        if self._splits:
            self._reads = ResetSchema(self._own_tasks([options.split, options.test_split]))
        if takes_mcp(facts.action):
            listed = self._asked(lambda session: session.step(LIST_TOOLS))
            self._form = McpForm(listed.observation.get("tools"))
        else:
            self._form = form_of(facts.action)
        self.tools: Sequence[JsonObject] = self._form.tools
        known = [facts.name, facts.version, facts.schema, facts.splits, list(self.tools)]
        self.version = f"{CODE}-{digest([*known, options.meaning])[:16]}"

    def base_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return `count` tasks that pi_env could write; asks the server for each."""
        return self._drawn("base", seed, count)

    def heldout_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return `count` tasks of the held-out split, or of the held-out part by a hash."""
        return self._drawn("heldout", seed, count)

    def open_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return `count` tasks that are not held out, with repetitions where there are fewer."""
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
            parts = [RULES, self.resets.text, self._about, AIM, env_request(0.9, base), new]
            rules = "\n".join(filter(None, parts))
        return with_rules(rules, env_request(context.history.success_rate, context.base.program))

    def env_grammar(self, context: Context) -> Grammar:
        """Return the schema of the reset arguments."""
        del context
        return Grammar("json", self.resets.text)

    def parse(self, text: str) -> list[TaskDraft | Rejected]:
        """Return the task that the text spells, or the reason why it spells no task.

        Raises DomainError where the server is lost, which says nothing about the text.
        """
        arguments = self._reads.read(text.strip())
        if isinstance(arguments, str):
            return [Rejected(Rejection.UNPARSEABLE, arguments)]
        if self.is_heldout(arguments):
            return [Rejected(Rejection.IN_HELDOUT, f"{spelled(arguments)} is held out")]
        return [self._task(arguments)]

    def agent_messages(self, draft: TaskDraft) -> list[Message]:
        """Return what the reset said, after the instructions; a chat template shows the tools."""
        return with_rules(self.options.instructions, draft.prompt)

    def episode(self, draft: TaskDraft, seed: int) -> OpenEnvEpisode:
        """Return a fresh attempt; the task's arguments decide all, so `seed` decides nothing."""
        del seed
        arguments = as_object(draft.spec.get("reset"))
        if not arguments:
            raise DomainError(f"domain openenv: a spec without reset: {str(draft.spec)[:80]}")
        return OpenEnvEpisode(self._stage, _with_seed(draft.program, arguments), draft.prompt)

    def score(self, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        """Return the verdict that the stored rewards of a transcript make.

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
                f"domain openenv: the reward {found:g} of an attempt is outside of "
                f"domain.options.reward_range [{low:g}, {high:g}]: give the worst and the best "
                f"reward of an attempt (domain.options.reward is {self.options.reward!r})"
            )
        reward = min(max(reward, 0.0), 1.0)
        success = reward >= self.options.success_at - SLACK
        return Verdict(reward, success, "" if success else f"reward {found:g}")

    def trivial_answers(self, draft: TaskDraft) -> list[str]:
        """Return an empty text, a number, and the request."""
        return ["", "0", draft.prompt]

    def is_heldout(self, arguments: JsonObject) -> bool:
        """Return whether the task of reset arguments is for evaluation alone."""
        if self.options.test_split in self._splits:
            return arguments["split"] == self.options.test_split
        return in_heldout(spelled(arguments))

    @cached_property
    def _stage(self) -> EpisodeStage:
        return EpisodeStage(self._seats, self._form, self._tell, self.repeatable)

    @cached_property
    def _shown(self) -> list[str]:
        """Return two programs that pi_env's rules show."""
        return [task.program for task in self.open_tasks(seed_from("openenv", "shown"), 2)]

    def _own_tasks(self, splits: Sequence[str]) -> JsonObject:
        """Return the schema of the server's own tasks in splits, or of seeds where it has none."""
        if not self._splits:
            return of_seeds(self.options.seeds)
        if splits[0] not in self._splits:
            raise ConfigError(
                f"domain.options.split {splits[0]!r}: the server has the splits "
                f"{', '.join(self._splits)}"
            )
        return of_tasks({name: self._splits[name] for name in splits if name in self._splits})

    def _drawn(self, what: str, seed: int, count: int) -> list[TaskDraft]:
        heldout = what == "heldout"
        rng = random.Random(seed_from("openenv", what, seed))
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
            lower = "data.validation_tasks or data.test_tasks" if heldout else "data.base_tasks"
            raise ConfigError(
                f"the server has only about {len(drafts)} {what} tasks{refused}; {count} are "
                f"wanted: widen domain.options.reset, or lower {lower}"
            )
        return list(drafts.values())

    def _candidates(
        self, rng: random.Random, *, heldout: bool, count: int = 100
    ) -> Iterator[JsonObject]:
        """Return arguments to try: all tasks of a split in a random order, else draws."""
        options = self.options
        apart = heldout and options.test_split in self._splits
        split = options.test_split if apart else options.split
        if not self._splits:
            return (self.resets.draw(rng) for _ in range(TRIES + 50 * count))
        order = rng.sample(range(self._splits[split]), self._splits[split])
        return ({"index": index, "split": split} for index in order)

    def _task(self, arguments: JsonObject) -> TaskDraft | Rejected:
        """Return the task of reset arguments, as the server opens it; raises DomainError."""
        program, options = spelled(arguments), self.options
        try:
            opened = self._asked(lambda session: session.reset(_with_seed(program, arguments)))
        except RefusedByServer as error:
            return Rejected(Rejection.OUT_OF_RANGE, f"the server refuses it: {error.message}")
        except EnvironmentLost as error:
            raise DomainError(f"domain openenv: no task was made of {program}: {error}") from error
        prompt = self._tell(opened)
        if opened.done or not prompt:
            why = "the attempt is over at once" if opened.done else "the reset says nothing"
            return Rejected(Rejection.INCONSISTENT, why)
        difficulty = arguments.get(options.difficulty or "", 1.0)
        if not isinstance(difficulty, int | float):
            raise ConfigError(
                f"domain.options.difficulty {options.difficulty!r}: {difficulty!r} is no number"
            )
        return TaskDraft(
            prompt=prompt,
            spec={"reset": arguments},
            ground_truth=told(opened.metadata.get(options.answer or "", "")),
            program=program,
            family=str(arguments.get(options.family or "", "task")),
            difficulty=float(difficulty),
            fingerprint=program,
        )

    def _asked(self, ask: Callable[[ServerSession], Result]) -> Result:
        """Return what one question comes to, in a session that is free for it; raises as Seats."""
        asker = _Asker()
        try:
            return self._seats.asked(asker, lambda session, _: ask(session), shared=self.repeatable)
        finally:
            self._seats.leave(asker)

    def _tell(self, answer: ServerAnswer) -> str:
        return tell(answer, self._hidden)


class _Asker:
    """Whoever holds a session for one question."""


def _with_seed(program: str, arguments: JsonObject) -> JsonObject:
    """Return reset arguments with a seed, which a task has for good."""
    return {"seed": seed_from("openenv", program) % MOST_SEED, **arguments}


@cache
def _server(
    place: str, served: tuple[str, ...] | None, timeout_s: float, wait_s: float
) -> OpenEnvServer:
    """Return the server at an address, or with `served` the one of an app that gets variables."""
    url = (lambda: place) if served is None else _process(place, served).url
    return OpenEnvServer(url, timeout_s=timeout_s, wait_s=wait_s)


@cache
def _process(place: str, variables: tuple[str, ...]) -> ServerProcess:
    return ServerProcess(place, variables)


@cache
def _seats(server: OpenEnvServer, most: int, wait_s: float) -> Seats:
    """Return the sessions with a server, which all domains of a process share."""
    return Seats(server.connect, most, wait_s, server.patience)
