"""Stage `rollout`: chooses the tasks and seeds of the attempts, and makes their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl

from genenv_core.algorithm.mixture import base_attempts
from genenv_core.canonical import canonical_json
from genenv_core.config.sections.rollout import RolloutConfig
from genenv_core.config.sections.updates import MixtureConfig
from genenv_core.domains.shares import Shares
from genenv_core.epoch.attempting.choosing import chosen_tasks
from genenv_core.epoch.attempting.windows import Window
from genenv_core.epoch.rows import SeedFor, frame, of_source, to_tasks
from genenv_core.ids import group_id, trace_id
from genenv_core.play.attempt import Player
from genenv_core.play.calls import calls_made
from genenv_core.types import Rollout, SamplingParams, Task, TaskSource


def attempted(
    tasks: pl.DataFrame,
    data: pl.DataFrame,
    mixture: MixtureConfig,
    seed_for: SeedFor,
    window: Window | None = None,
    shares: Shares | None = None,
) -> list[Task]:
    """Return the epoch's chosen new tasks, then base tasks that it draws from `data`.

    With a window, only the new tasks in it. Each of several domains has its share of base tasks.
    """
    new, base = to_tasks(chosen_tasks(tasks)), to_tasks(of_source(data, TaskSource.BASE))
    if window is not None:
        new = [new[place] for place in window.places(len(new))]
    want = base_attempts(len(new), new_share=mixture.new, base_share=mixture.base)
    rng = np.random.default_rng(seed_for("base"))
    shares = shares or Shares()
    chosen: list[int] = []
    for name, count in shares.split(want).items():
        own = [i for i, one in enumerate(base) if shares.domain_of(one.draft.family) == name]
        drawn = rng.choice(len(own), size=min(count, len(own)), replace=False)
        chosen += [own[index] for index in drawn.tolist()]
    return [*new, *(base[index] for index in sorted(chosen))]


def attempt(
    player: Player,
    tasks: Sequence[Task],
    shards: Mapping[int, range],
    settings: RolloutConfig,
    *,
    epoch: int,
    scope: str,
    policy_version: int,
    decode: Callable[[Sequence[int]], str],
    seed_for: SeedFor,
) -> Iterator[tuple[int, dict[str, pl.DataFrame]]]:
    """Yield the number of each shard and its rows by table, once it is whole.

    The table `trace_sequences` is among them only where a conversation began anew, so that a run
    without further sequences writes what it wrote before there was the table.

    Args:
        player: pi_agent.
        tasks: all tasks of the epoch; a shard is a range of their places.
        shards: the shards to attempt, by number.
        settings: group size and sampling.
        epoch: number of the round.
        scope: the stage's, for ids.
        policy_version: the player's.
        decode: text of token ids.
        seed_for: the seed of a turn.
    """
    wanted = [place for shard in shards.values() for place in shard]
    shard_of = {place: number for number, shard in shards.items() for place in shard}
    # By place: ids change with every setting, and the draw should not.
    place_of = {tasks[place].task_id: place for place in wanted}
    made: dict[int, dict[int, list[Rollout]]] = {number: {} for number in shards}
    for index, rollouts in player.groups(
        [[(tasks[place].task_id, tasks[place].draft) for place in s] for s in shards.values()],
        n=settings.n,
        params=SamplingParams(settings.max_tokens, settings.temperature, settings.top_p),
        seed_of=lambda task, sample, turn: seed_for(place_of[task], sample, turn),
    ):
        place = wanted[index]
        number = shard_of[place]
        made[number][place] = rollouts
        if len(made[number]) < len(shards[number]):
            continue
        whole = made.pop(number)
        attempts = [(group_id(epoch, scope, at), one) for at in shards[number] for one in whole[at]]
        traces = [_scalars(*one, epoch, policy_version) for one in attempts]
        tokens = [_payload(*one, decode) for one in attempts]
        more = [row for one in attempts for row in _more(*one)]
        yield (
            number,
            {
                "traces": frame("traces", traces),
                "trace_tokens": frame("trace_tokens", tokens),
                **({"trace_sequences": frame("trace_sequences", more)} if more else {}),
            },
        )


def scored_again(
    rows: Sequence[Mapping[str, Any]], logprobs: Sequence[list[float] | None], epoch: int
) -> pl.DataFrame:
    """Return `trainer_logprobs` of those rows of `trace_tokens` that have them."""
    scored = [
        {"trace_id": row["trace_id"], "epoch": epoch, "logprobs": made}
        for row, made in zip(rows, logprobs, strict=True)
        if made is not None
    ]
    return frame("trainer_logprobs", scored).sort("trace_id")


def _scalars(group: str, rollout: Rollout, epoch: int, version: int) -> dict[str, Any]:
    prompts = sum(len(one.prompt_ids) for one in rollout.sequences)
    read, wrote = rollout.usage or (prompts, rollout.sampled)
    return {
        "trace_id": trace_id(group, rollout.sample_index),
        "epoch": epoch,
        "task_id": rollout.task_id,
        "group_id": group,
        "sample_index": rollout.sample_index,
        "policy_version": version,
        "turns": rollout.turns,
        "prompt_tokens": read,
        "response_tokens": wrote,
        "tool_calls": calls_made(rollout.messages, rollout.turns),
        "finish_reason": rollout.finish_reason.value,
        "error": rollout.error,
        "cause": rollout.cause and rollout.cause.value,
    }


def _payload(
    group: str, rollout: Rollout, decode: Callable[[Sequence[int]], str]
) -> dict[str, Any]:
    sampled = [
        token
        for one in rollout.sequences
        for token, mask in zip(one.token_ids, one.loss_mask, strict=True)
        if mask
    ]
    return {
        "trace_id": trace_id(group, rollout.sample_index),
        "prompt_ids": rollout.prompt_ids,
        "token_ids": rollout.token_ids,
        "logprobs": rollout.logprobs,
        "loss_mask": rollout.loss_mask,
        "messages": canonical_json(list(rollout.messages)).decode(),
        "response_text": decode(sampled) if rollout.usage is None else rollout.said,
    }


def _more(group: str, rollout: Rollout) -> list[dict[str, Any]]:
    """Return the rows of `trace_sequences` of an attempt; [] for most."""
    trace = trace_id(group, rollout.sample_index)
    return [
        {"trace_id": trace, "sequence": number, **asdict(one)}
        for number, one in enumerate(rollout.more, 1)
    ]
