"""Multi-turn rollouts: n attempts at each task, all running episodes sampled together.

Each wave is one turn of every episode still going: sample, decode, `step`, append what the template
writes between turns. The ids that a policy sampled are kept as they are. What ends an episode:

- the environment says done: `stop`;
- a completion hits its token bound, or `max_turns` or `max_length` is reached: `length`;
- the environment or the engine fails for this episode alone: `error`, with a message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from genenv_core.chat import ChatFormat
from genenv_core.domains.base import Domain, Episode
from genenv_core.engines.base import Engine
from genenv_core.errors import ConfigError, DomainError
from genenv_core.types import (
    Completion,
    FinishReason,
    Message,
    Rollout,
    SampleRequest,
    SamplingParams,
    TaskDraft,
)

EPISODE_TURN = -1
"""The `turn` for which `seed_of` is asked for the seed of the environment itself."""

SeedOf = Callable[[str, int, int], int]
"""(task_id, sample_index, turn) -> seed."""


@dataclass(slots=True)
class _Attempt:
    """One rollout being made; `finish` is None while it goes on."""

    task_id: str
    sample_index: int
    prompt_ids: tuple[int, ...]
    messages: list[Message]
    episode: Episode | None
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    loss_mask: list[int] = field(default_factory=list[int])
    turns: int = 0
    finish: FinishReason | None = None
    error: str = ""

    @property
    def length(self) -> int:
        """Tokens so far, the prompt's included."""
        return len(self.prompt_ids) + len(self.token_ids)

    def add_completion(self, completion: Completion) -> None:
        """Append sampled tokens, which training learns from."""
        self.token_ids.extend(completion.token_ids)
        self.logprobs.extend(completion.logprobs)
        self.loss_mask.extend([1] * len(completion.token_ids))
        self.turns += 1

    def add_observation(self, token_ids: Sequence[int]) -> None:
        """Append tokens that nobody sampled: no logprob, no loss."""
        self.token_ids.extend(token_ids)
        self.logprobs.extend([0.0] * len(token_ids))
        self.loss_mask.extend([0] * len(token_ids))

    def end(self, finish: FinishReason, error: str = "") -> None:
        """Take this attempt out of the waves."""
        self.finish, self.error = finish, error

    def rollout(self) -> Rollout:
        """Return the finished record."""
        assert self.finish is not None
        return Rollout(
            task_id=self.task_id,
            sample_index=self.sample_index,
            prompt_ids=self.prompt_ids,
            token_ids=tuple(self.token_ids),
            logprobs=tuple(self.logprobs),
            loss_mask=tuple(self.loss_mask),
            messages=tuple(self.messages),
            turns=self.turns,
            finish_reason=self.finish,
            error=self.error,
        )


def run_rollouts(
    tasks: Sequence[tuple[str, TaskDraft]],
    domain: Domain,
    engine: Engine,
    chat: ChatFormat,
    *,
    n: int,
    params: SamplingParams,
    max_turns: int,
    max_length: int,
    seed_of: SeedOf,
) -> list[Rollout]:
    """Return n rollouts a task, in task order, then by sample index.

    Args:
        tasks: (task id, draft) pairs; ids are unique.
        domain: opens the episodes and answers the agent.
        engine: samples the agent's turns.
        chat: the agent checkpoint's template; its stop tokens are added to those of `params`.
        n: attempts a task, at least 1.
        params: `max_tokens` bounds one turn.
        max_turns: completions in one episode, at least 1.
        max_length: tokens of one episode, prompt and observations included.
        seed_of: the seed of each turn, and with turn `EPISODE_TURN` of the environment.

    A rollout's tokens never exceed `max_length`: an observation that leaves no room for another
    completion stays in `messages` and adds no tokens.
    """
    for name, value in (("n", n), ("max_turns", max_turns), ("max_length", max_length)):
        if value < 1:
            raise ConfigError(f"rollout: {name} is {value}; set at least 1")
    stops = tuple(dict.fromkeys([*params.stop_token_ids, *chat.stop_token_ids]))
    params = replace(params, stop_token_ids=stops)
    attempts: list[_Attempt] = [
        attempt
        for task_id, draft in tasks
        for attempt in _open(task_id, draft, domain, chat, n, max_length, seed_of)
    ]
    while active := [attempt for attempt in attempts if attempt.finish is None]:
        completions = _sample(active, engine, params, max_length, seed_of)
        for attempt, completion in zip(active, completions, strict=True):
            _advance(attempt, completion, chat, max_turns, max_length)
    return [attempt.rollout() for attempt in attempts]


def _open(
    task_id: str,
    draft: TaskDraft,
    domain: Domain,
    chat: ChatFormat,
    n: int,
    max_length: int,
    seed_of: SeedOf,
) -> list[_Attempt]:
    """Return the n attempts at one task before their first turn."""
    try:
        messages = list(domain.agent_messages(draft))
    except Exception as error:
        raise DomainError(
            f"domain {domain.name}: agent_messages failed on task {task_id}: {_describe(error)}"
        ) from error
    prompt_ids = chat.first_prompt(messages, domain.tools)
    attempts: list[_Attempt] = []
    for sample_index in range(n):
        attempt = _Attempt(task_id, sample_index, prompt_ids, list(messages), None)
        attempts.append(attempt)
        if len(prompt_ids) >= max_length:
            attempt.end(
                FinishReason.ERROR,
                f"the prompt has {len(prompt_ids)} tokens, which leaves no room in max_length "
                f"{max_length}",
            )
            continue
        try:
            attempt.episode = domain.episode(draft, seed_of(task_id, sample_index, EPISODE_TURN))
        except Exception as error:
            attempt.end(FinishReason.ERROR, f"the episode could not start: {_describe(error)}")
    return attempts


def _sample(
    active: Sequence[_Attempt],
    engine: Engine,
    params: SamplingParams,
    max_length: int,
    seed_of: SeedOf,
) -> list[Completion]:
    """Return one completion an attempt, none longer than its attempt has room for.

    All share one `max_tokens`, the largest that any of them can use. Cutting a completion to n
    tokens gives what `max_tokens=n` would have: a token does not depend on the bound.
    """
    rooms = [max_length - attempt.length for attempt in active]
    requests = [
        SampleRequest(
            prompt_ids=(*attempt.prompt_ids, *attempt.token_ids),
            seed=seed_of(attempt.task_id, attempt.sample_index, attempt.turns),
        )
        for attempt in active
    ]
    shared = replace(params, max_tokens=min(params.max_tokens, max(rooms)))
    completions = engine.sample(requests, shared)
    return [
        completion
        if len(completion.token_ids) <= room
        else replace(
            completion,
            token_ids=completion.token_ids[:room],
            logprobs=completion.logprobs[:room],
            finish_reason=FinishReason.LENGTH,
        )
        for completion, room in zip(completions, rooms, strict=True)
    ]


def _advance(
    attempt: _Attempt, completion: Completion, chat: ChatFormat, max_turns: int, max_length: int
) -> None:
    """Take one completion into an attempt, ask its environment, and prepare the next turn."""
    if completion.finish_reason is FinishReason.ERROR:
        attempt.end(FinishReason.ERROR, completion.error)
        return
    attempt.add_completion(completion)
    text = chat.decode(completion.token_ids)
    attempt.messages.append({"role": "assistant", "content": text})
    if completion.finish_reason is FinishReason.LENGTH:
        attempt.end(FinishReason.LENGTH)
        return
    assert attempt.episode is not None
    try:
        observation = attempt.episode.step(text)
        answered, done = list(observation.messages), observation.done
    except Exception as error:
        attempt.end(FinishReason.ERROR, f"the environment failed: {_describe(error)}")
        return
    attempt.messages.extend(answered)
    if done:
        attempt.end(FinishReason.STOP)
    elif attempt.turns >= max_turns:
        attempt.end(FinishReason.LENGTH)
    else:
        between = chat.continuation(answered, completion.token_ids)
        if attempt.length + len(between) >= max_length:
            attempt.end(FinishReason.LENGTH)
        else:
            attempt.add_observation(between)


def _describe(error: Exception) -> str:
    """Return type and first line of an error, short enough for a table."""
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}"
