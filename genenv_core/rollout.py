"""Rollouts in waves: n attempts at each task, all running episodes sampled together.

Each wave is one turn of every episode still going: sample, decode, `step`, append what the template
writes between turns. It suits environments that answer at once. Where tools take time,
`genenv_core.episodes` lets each attempt advance on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from genenv_core.attempts import (
    Attempt,
    Bounds,
    SeedOf,
    open_group,
    stepped,
    with_stops,
)
from genenv_core.chat import ChatFormat
from genenv_core.domains.base import Domain
from genenv_core.engines.base import Engine
from genenv_core.engines.session import cut
from genenv_core.types import Completion, Rollout, SamplingParams, TaskDraft


def run_rollouts(
    tasks: Sequence[tuple[str, TaskDraft]],
    domain: Domain,
    engine: Engine,
    chat: ChatFormat,
    *,
    bounds: Bounds,
    params: SamplingParams,
    seed_of: SeedOf,
) -> list[Rollout]:
    """Return n rollouts a task, in task order, then by sample index.

    Args:
        tasks: (task id, draft) pairs; ids are unique.
        domain: opens the episodes and answers the agent.
        engine: samples the agent's turns.
        chat: the agent checkpoint's template; its stop tokens are added to those of `params`.
        bounds: what bounds each attempt.
        params: `max_tokens` bounds one turn.
        seed_of: the seed of each turn, and with turn `EPISODE_TURN` of the environment.

    A rollout's tokens never exceed `max_length`: an observation that leaves no room for another
    completion stays in `messages` and adds no tokens.
    """
    params = with_stops(params, chat)
    attempts: list[Attempt] = [
        attempt
        for task_id, draft in tasks
        for attempt in open_group(task_id, draft, domain, chat, bounds, seed_of)
    ]
    while active := [attempt for attempt in attempts if attempt.finish is None]:
        completions = _sample(active, engine, params, bounds, seed_of)
        for attempt, completion in zip(active, completions, strict=True):
            action = attempt.take(completion, chat)
            if action is not None:
                assert attempt.episode is not None
                attempt.observe(stepped(attempt.episode.step, action), chat, bounds)
    return [attempt.rollout() for attempt in attempts]


def _sample(
    active: Sequence[Attempt],
    engine: Engine,
    params: SamplingParams,
    bounds: Bounds,
    seed_of: SeedOf,
) -> list[Completion]:
    """Return one completion an attempt, none longer than its attempt has room for.

    All share one `max_tokens`, the largest that any of them can use. Cutting a completion to n
    tokens gives what `max_tokens=n` would have: a token does not depend on the bound.
    """
    rooms = [bounds.max_length - attempt.length for attempt in active]
    requests = [attempt.request(seed_of) for attempt in active]
    shared = replace(params, max_tokens=min(params.max_tokens, max(rooms)))
    completions = engine.sample(requests, shared)
    return [cut(done, room) for done, room in zip(completions, rooms, strict=True)]
