"""Rollouts in waves: n attempts at each task, all running episodes sampled together.

Each wave is one turn of every episode still going: sample, decode, `step`, append what the template
writes between turns. It suits environments that answer at once. Where tools take time,
`genenv_core.episodes` lets each attempt advance on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from genenv_core.attempts import Attempt, Play, open_episode, open_group, stepped
from genenv_core.engines.session import cut
from genenv_core.types import Completion, Rollout, SamplingParams, TaskDraft


def run_rollouts(tasks: Sequence[tuple[str, TaskDraft]], play: Play) -> list[Rollout]:
    """Return n rollouts a task, in task order, then by sample index.

    Args:
        tasks: (task id, draft) pairs; ids are unique.
        play: who attempts them, and how.

    A rollout's tokens never exceed `max_length`: an observation that leaves no room for another
    completion stays in `messages` and adds no tokens.
    """
    params = play.stopping
    attempts: list[Attempt] = []
    for task_id, draft in tasks:
        attempts += open_group(task_id, draft, play)
    for attempt in attempts:
        if attempt.finish is None:
            open_episode(attempt, play)
    while active := [attempt for attempt in attempts if attempt.finish is None]:
        completions = _sample(active, play, params)
        for attempt, completion in zip(active, completions, strict=True):
            action = attempt.take(completion, play.chat)
            if action is not None:
                assert attempt.episode is not None
                observation = stepped(attempt.episode.step, action)
                attempt.observe(observation, play.chat, play.bounds)
    return [attempt.rollout() for attempt in attempts]


def _sample(active: Sequence[Attempt], play: Play, params: SamplingParams) -> list[Completion]:
    """Return one completion an attempt, none longer than its attempt has room for.

    All share one `max_tokens`, the largest that any of them can use. Cutting a completion to n
    tokens gives what `max_tokens=n` would have: a token does not depend on the bound.
    """
    rooms = [play.bounds.max_length - attempt.length for attempt in active]
    requests = [attempt.request(play.seed_of) for attempt in active]
    shared = replace(params, max_tokens=min(params.max_tokens, max(rooms)))
    completions = play.engine.sample(requests, shared)
    return [cut(done, room) for done, room in zip(completions, rooms, strict=True)]
