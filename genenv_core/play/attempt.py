"""One attempt at a task in progress: what it has sampled and seen, and what comes next.

The ids that a policy sampled stay as they are. These end an attempt:

- the environment says done: `stop`;
- a completion hits its token bound, or the attempt reaches `max_turns` or `max_length`: `length`.
  `max_length` holds for each sequence, `max_turns` for all of them;
- the engine fails for this attempt alone, the episode cannot start, its tools fail `max_errors`
  times in a row or in the last turn, or its prompt leaves the agent no room: `error`, with a
  message and its cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Protocol

from genenv_core.domains.protocol import Domain, Episode, tools_of
from genenv_core.domains.rewards import unrewarded
from genenv_core.domains.steps import as_observed, broken, error_line
from genenv_core.engines.protocol import Engine
from genenv_core.errors import ConfigError, DomainError
from genenv_core.play.chat import ChatFormat
from genenv_core.types import (
    Cause,
    Completion,
    FinishReason,
    FurtherSequence,
    JsonObject,
    Message,
    Observation,
    Rollout,
    SampleRequest,
    SamplingParams,
    TaskDraft,
)

SeedOf = Callable[[str, int, int], int]
"""(task_id, sample_index, turn) -> seed."""


@dataclass(frozen=True, slots=True)
class AttemptBounds:
    """The bounds of every attempt.

    Args:
        n: attempts a task, at least 1.
        max_turns: completions in one attempt, at least 1.
        max_length: tokens of one sequence, prompt and observations included.
        max_errors: failing steps in a row after which an attempt counts as broken.
    """

    n: int
    max_turns: int
    max_length: int
    max_errors: int = 1

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 1:
                raise ConfigError(f"rollout: {name} is {value}; set at least 1")


@dataclass(frozen=True, slots=True)
class Play:
    """Who attempts tasks, of which domain, and within which bounds.

    Args:
        domain: opens the episodes and answers the agent.
        engine: samples the agent's turns.
        chat: the agent checkpoint's template; its stop tokens join those of `params`.
        bounds: the bounds of each attempt.
        params: sampling of the turns; `max_tokens` bounds one turn.
        seed_of: the seed of each turn, and with turn `EPISODE_TURN` of the environment.
    """

    domain: Domain
    engine: Engine
    chat: ChatFormat
    bounds: AttemptBounds
    params: SamplingParams
    seed_of: SeedOf


class Player(Protocol):
    """A checkpoint of pi_agent that attempts tasks."""

    def groups(
        self,
        batches: Sequence[Sequence[tuple[str, TaskDraft]]],
        *,
        n: int,
        params: SamplingParams,
        seed_of: SeedOf,
    ) -> Iterator[tuple[int, list[Rollout]]]:
        """Yield (index of a task among those of all batches, its n rollouts), as they finish."""
        ...

    def answer_probabilities(
        self, tasks: Sequence[tuple[str, TaskDraft]], *, params: SamplingParams, seed_of: SeedOf
    ) -> list[float] | None:
        """Return the probability of each task's reference answer; None where nobody can know it."""
        ...


@dataclass(slots=True)
class Attempt:
    """One rollout in progress; `finish` is None until it ends.

    `actions` are the agent's texts that its environment has answered. `lasting` says that the same
    seeds would break it again, as where pi_env in the place of the tools writes what fits no
    schema. `stranded` says that its environment is gone and cannot be made anew. The ids are those
    of the present sequence, which begins at `turn` and `message`; `before` are the finished ones.
    """

    task_id: str
    sample_index: int
    draft: TaskDraft
    prompt_ids: tuple[int, ...]
    messages: list[Message]
    tools: Sequence[JsonObject] = ()
    episode: Episode | None = None
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    loss_mask: list[int] = field(default_factory=list[int])
    actions: list[str] = field(default_factory=list[str])
    turns: int = 0
    errors: int = 0
    finish: FinishReason | None = None
    error: str = ""
    cause: Cause | None = None
    lasting: bool = False
    stranded: bool = False
    turn: int = 0
    message: int = 0
    before: list[FurtherSequence] = field(default_factory=list[FurtherSequence])

    @property
    def passing(self) -> bool:
        """Return whether something broke it that another try may not meet."""
        return self.cause in (Cause.ENVIRONMENT, Cause.ENGINE) and not self.lasting

    @property
    def length(self) -> int:
        """Tokens of the sequence so far, the prompt's included."""
        return len(self.prompt_ids) + len(self.token_ids)

    @property
    def sequences(self) -> tuple[FurtherSequence, ...]:
        """Return all of its sequences in order, the present one last."""
        return (*self.before, self._sequence())

    def request(self, seed_of: SeedOf) -> SampleRequest:
        """Return the request for the next turn: all ids of the sequence, sampled and seen."""
        return SampleRequest(
            prompt_ids=(*self.prompt_ids, *self.token_ids),
            seed=seed_of(self.task_id, self.sample_index, self.turns),
        )

    def take(self, completion: Completion, chat: ChatFormat) -> str | None:
        """Append a completion; return its text for the environment, None where the attempt ends.

        The environment never gets the text of a completion that was cut off.
        """
        if completion.finish_reason is FinishReason.ERROR:
            self.end(FinishReason.ERROR, completion.error, Cause.ENGINE)
            self.lasting = completion.lasting
            return None
        self.token_ids.extend(completion.token_ids)
        self.logprobs.extend(completion.logprobs)
        self.loss_mask.extend([1] * len(completion.token_ids))
        self.turns += 1
        text = chat.said(completion.token_ids, self.tools)
        self.messages.append({"role": "assistant", "content": text})
        if completion.finish_reason is FinishReason.LENGTH:
            self.end(FinishReason.LENGTH)
            return None
        return text

    def opened(self, observation: Observation) -> None:
        """End the attempt if its episode could not start."""
        if observation.failed:
            self.end(FinishReason.ERROR, broken(observation, self.task_id, 0), Cause.ENVIRONMENT)

    def observe(self, observation: Observation, chat: ChatFormat, bounds: AttemptBounds) -> None:
        """Append the environment's answer, whose tokens have no logprob and no loss."""
        answered = as_observed(observation)
        self.messages.extend(answered)
        if observation.failed:
            self.errors += 1
        else:
            self.errors = 0
            self.actions.append(self.messages[-1 - len(answered)]["content"])
        last = self.turns >= bounds.max_turns
        lost = observation.failed and observation.cause is not Cause.AGENT and last
        if self.errors >= bounds.max_errors or lost or self.stranded:
            said = self.messages[-1 - len(answered)]["content"]
            why = broken(observation, self.task_id, self.turns, said)
            self.end(FinishReason.ERROR, why, observation.cause)
            self.lasting = observation.simulated and observation.cause is not Cause.ENGINE
        elif observation.done:
            self.end(FinishReason.STOP)
        elif last:
            self.end(FinishReason.LENGTH)
        elif observation.begins_anew:
            self._begin_anew(observation.messages, chat, bounds)
        else:
            before = (self.token_ids[-1],) if self.loss_mask and self.loss_mask[-1] else ()
            answers = list(map(unrewarded, observation.messages))
            between = chat.continuation(answers, before, self.tools)
            if self.length + len(between) >= bounds.max_length:
                self.end(FinishReason.LENGTH)
                return
            self.token_ids.extend(between)
            self.logprobs.extend([0.0] * len(between))
            self.loss_mask.extend([0] * len(between))

    def _begin_anew(
        self, messages: Sequence[Message], chat: ChatFormat, bounds: AttemptBounds
    ) -> None:
        """Finish the sequence; the next one has the last messages, `messages`, for its prompt."""
        prompt = chat.first_prompt(list(map(unrewarded, messages)), self.tools)
        if len(prompt) >= bounds.max_length:
            self.end(FinishReason.LENGTH)
            return
        self.before.append(self._sequence())
        self.turn, self.message = self.turns, len(self.messages) - len(messages)
        self.prompt_ids = prompt
        self.token_ids, self.logprobs, self.loss_mask = [], [], []

    def _sequence(self) -> FurtherSequence:
        """Return the present sequence; it branches off at the end of the one before it."""
        return FurtherSequence(
            turn=self.turn,
            message=self.message,
            parent=len(self.before) - 1 if self.before else None,
            branch_turn=self.turn,
            prompt_ids=self.prompt_ids,
            token_ids=tuple(self.token_ids),
            logprobs=tuple(self.logprobs),
            loss_mask=tuple(self.loss_mask),
        )

    def end(self, finish: FinishReason, error: str = "", cause: Cause | None = None) -> None:
        """End the attempt."""
        self.finish, self.error, self.cause = finish, error, cause

    def rollout(self) -> Rollout:
        """Return the finished record."""
        assert self.finish is not None
        first, *more = self.sequences
        return Rollout(
            task_id=self.task_id,
            sample_index=self.sample_index,
            prompt_ids=first.prompt_ids,
            token_ids=first.token_ids,
            logprobs=first.logprobs,
            loss_mask=first.loss_mask,
            messages=tuple(self.messages),
            turns=self.turns,
            finish_reason=self.finish,
            error=self.error,
            cause=self.cause,
            more=tuple(more),
        )


def opening(
    domain: Domain, task_id: str, draft: TaskDraft
) -> tuple[list[Message], Sequence[JsonObject]]:
    """Return the messages and tools that open an attempt; raises DomainError where either fails."""
    try:
        return list(domain.agent_messages(draft)), tools_of(domain, draft)
    except Exception as error:
        raise DomainError(
            f"domain {domain.name}: agent_messages or tools_of failed on task {task_id}: "
            f"{error_line(error)}"
        ) from error


def open_group(task_id: str, draft: TaskDraft, play: Play) -> list[Attempt]:
    """Return the n attempts at one task before their first turn, without episodes.

    Raises DomainError where the domain cannot give a task's messages.
    """
    bounds = play.bounds
    messages, tools = opening(play.domain, task_id, draft)
    prompt_ids = play.chat.first_prompt(messages, tools)
    attempts: list[Attempt] = []
    for sample_index in range(bounds.n):
        attempt = Attempt(task_id, sample_index, draft, prompt_ids, list(messages), tools)
        attempts.append(attempt)
        if len(prompt_ids) >= bounds.max_length:
            attempt.end(
                FinishReason.ERROR,
                f"the prompt has {len(prompt_ids)} tokens, which leaves no room in max_length "
                f"{bounds.max_length}; in agent_messages of task {task_id}",
                Cause.AGENT,
            )
    return attempts


def with_stops(params: SamplingParams, chat: ChatFormat) -> SamplingParams:
    """Return the parameters with the stop tokens of the checkpoint's template added."""
    stops = tuple(dict.fromkeys([*params.stop_token_ids, *chat.stop_token_ids]))
    return replace(params, stop_token_ids=stops)
