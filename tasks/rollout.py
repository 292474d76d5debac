"""Stage `rollout`: n attempts of pi_agent at each new task and at a share of the base tasks.

Groups are committed in shards. A shard that was finished before a crash is taken as it is; one that
was not is done again whole, from the same seeds. Where tools take time, the attempts of all shards
advance on their own, and shards are finished in any order.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import polars as pl

from genenv_core.algorithm.mixture import base_attempts
from genenv_core.chat import ChatFormat
from genenv_core.errors import AlreadyExists, EngineError, IntegrityError, NotFound
from genenv_core.ids import group_id, trace_id
from genenv_core.storage import paths
from genenv_core.storage.canonical import canonical_json
from genenv_core.storage.manifest import Part, Shard
from genenv_core.storage.parquet import read_parquet
from genenv_core.types import Rollout, SamplingParams, Task, TaskSource
from tasks.engine import SAMPLING_FIELDS
from tasks.rows import frame, to_tasks
from tasks.sampling import Sampler, sampler, weights_of
from tasks.stage import Stage, StageContext, StageTask

log = logging.getLogger("genenv.stage")

STAGE = Stage(
    "rollout",
    ("tasks.rollout", "genenv_core.engines.transformers_engine"),
    ("domain", "rollout", "tools", "mixture.new", "mixture.base", *SAMPLING_FIELDS),
    ("torch", "transformers"),
)


def compute(context: StageContext) -> dict[str, Any]:
    """Attempt every task of the epoch; each shard is committed as it is finished."""
    config = context.config
    tasks = attempted_tasks(context)
    size = config.rollout.shard_groups
    shards = [range(start, min(start + size, len(tasks))) for start in range(0, len(tasks), size)]
    simulated = config.tools.execution == "simulated"
    apart = config.tools.execution == "inline"
    done: dict[int, list[Part]] = {}
    with ExitStack() as stack:
        sampling: Sampler | None = None
        for batch in [[n] for n in range(len(shards))] if apart else [list(range(len(shards)))]:
            found = {number: _finished(context, number) for number in batch}
            done.update({number: parts for number, parts in found.items() if parts is not None})
            context.progress(_groups(done, shards), len(tasks), "groups")
            missing = {number: shards[number] for number in batch if number not in done}
            if missing and sampling is None:
                player = weights_of(context, "simulator") if simulated else None
                opened = sampler(context, weights_of(context, "agent"), player)
                sampling = stack.enter_context(opened)
            if missing and sampling is not None:
                for number, parts in _attempt(context, sampling, missing, tasks):
                    _finish(context, number, parts)
                    done[number] = parts
                    context.progress(_groups(done, shards), len(tasks), "groups")
    for number in range(len(shards)):
        context.out.adopt(done[number])
    if not shards:
        context.out.table("traces", frame("traces", []))
        context.out.table("trace_tokens", frame("trace_tokens", []))
    return {
        "groups": len(tasks),
        "traces": len(tasks) * config.rollout.n,
        "metrics": _compared(context, [done[number] for number in range(len(shards))]),
    }


def attempted_tasks(context: StageContext) -> list[Task]:
    """Return the epoch's valid new tasks, then base tasks drawn for this epoch."""
    config = context.config
    new = to_tasks(context.frame("tasks", "tasks"))
    data = context.frame("bootstrap", "tasks")
    base = to_tasks(data.filter(pl.col("source") == TaskSource.BASE.value))
    want = base_attempts(len(new), new_share=config.mixture.new, base_share=config.mixture.base)
    rng = np.random.default_rng(context.seed_for("base"))
    chosen = sorted(rng.choice(len(base), size=min(want, len(base)), replace=False).tolist())
    return [*new, *(base[index] for index in chosen)]


def _groups(done: Collection[int], shards: Sequence[range]) -> int:
    """Return how many groups the finished shards hold."""
    return sum(len(shards[number]) for number in done)


def _attempt(
    context: StageContext, sampling: Sampler, shards: dict[int, range], tasks: Sequence[Task]
) -> Iterator[tuple[int, list[Part]]]:
    """Sample the groups of shards; yield the number and the parts of each as it becomes whole."""
    settings = context.config.rollout
    wanted = [index for shard in shards.values() for index in shard]
    shard_of = {index: number for number, shard in shards.items() for index in shard}
    groups = {
        tasks[index].task_id: group_id(context.epoch, context.scope, index) for index in wanted
    }
    # By place, not by id: ids change with every setting, and what is drawn should not.
    place_of = {tasks[index].task_id: index for index in wanted}
    made: dict[int, dict[int, list[Rollout]]] = {number: {} for number in shards}
    for place, rollouts in sampling.groups(
        [(tasks[index].task_id, tasks[index].draft) for index in wanted],
        batch=len(wanted),
        n=settings.n,
        params=SamplingParams(settings.max_tokens, settings.temperature, settings.top_p),
        seed_of=lambda task, sample, turn: context.seed_for(place_of[task], sample, turn),
    ):
        number = shard_of[wanted[place]]
        made[number][wanted[place]] = rollouts
        if len(made[number]) == len(shards[number]):
            whole = made.pop(number)
            ordered = [one for index in shards[number] for one in whole[index]]
            yield number, _written(context, number, ordered, groups, sampling.chat)


def _written(
    context: StageContext,
    number: int,
    rollouts: Sequence[Rollout],
    groups: dict[str, str],
    chat: ChatFormat,
) -> list[Part]:
    """Return the parts of one shard."""
    version = context.checkpoint_ref("agent").policy_version
    scalars = [_scalars(r, groups[r.task_id], context.epoch, version) for r in rollouts]
    payload = [_payload(r, groups[r.task_id], chat) for r in rollouts]
    return [
        context.out.written(table, frame(table, rows), f"{table}/{number:05d}.parquet")
        for table, rows in (("traces", scalars), ("trace_tokens", payload))
    ]


def _scalars(rollout: Rollout, group: str, epoch: int, version: int) -> dict[str, Any]:
    return {
        "trace_id": trace_id(group, rollout.sample_index),
        "epoch": epoch,
        "task_id": rollout.task_id,
        "group_id": group,
        "sample_index": rollout.sample_index,
        "policy_version": version,
        "turns": rollout.turns,
        "prompt_tokens": len(rollout.prompt_ids),
        "response_tokens": sum(rollout.loss_mask),
        "tool_calls": sum(
            message["content"].count("<tool_call>")
            for message in rollout.messages
            if message["role"] == "assistant"
        ),
        "finish_reason": rollout.finish_reason.value,
        "error": rollout.error,
    }


def _payload(rollout: Rollout, group: str, chat: ChatFormat) -> dict[str, Any]:
    sampled = [
        token for token, mask in zip(rollout.token_ids, rollout.loss_mask, strict=True) if mask
    ]
    return {
        "trace_id": trace_id(group, rollout.sample_index),
        "prompt_ids": rollout.prompt_ids,
        "token_ids": rollout.token_ids,
        "logprobs": rollout.logprobs,
        "loss_mask": rollout.loss_mask,
        "messages": canonical_json(list(rollout.messages)).decode(),
        "response_text": chat.decode(sampled),
    }


def _finished(context: StageContext, number: int) -> list[Part] | None:
    """Return the parts of a shard that an earlier attempt finished, if they are undamaged."""
    path = paths.shard(STAGE.name, context.key, number)
    try:
        parts = Shard.from_bytes(context.store.read(path)).parts
    except NotFound:
        return None
    except IntegrityError as error:
        log.warning("shard=%s unreadable, taken as a miss: %s", path, error)
        return None
    damage = context.artifacts.damage(parts)
    if damage:
        log.warning("shard=%s taken as a miss: %s", path, damage)
        return None
    return list(parts)


def _compared(context: StageContext, shards: Sequence[Sequence[Part]]) -> dict[str, float]:
    """Return how far the engine's logprobs are from the trainer's, on rows spread over the stage.

    Raises EngineError above the configured bound, after forgetting the shards: another attempt has
    to sample anew.
    """
    settings = context.config.rollout
    parts = [part for shard in shards for part in shard if part.table == "trace_tokens"]
    rows = _spread(context, parts, settings.logprob_rows)
    if not rows:
        return {}
    from genenv_core.engines.gap import Sampled, logprob_gap  # which loads torch

    gap = logprob_gap(
        context.checkpoint("agent"),
        [
            Sampled(row["prompt_ids"], row["token_ids"], row["logprobs"], row["loss_mask"])
            for row in rows
        ],
        temperature=settings.temperature,
        threads=context.config.compute.threads,
    )
    if gap is None:
        return {}
    if gap.mean > settings.max_logprob_gap:
        for number in range(len(shards)):
            context.store.delete(paths.shard(STAGE.name, context.key, number))
        raise EngineError(
            f"stage {STAGE.name} of epoch {context.epoch}: the engine's logprobs differ from the "
            f"trainer's by {gap.mean:.4f} nats a token ({gap.tokens} tokens of {len(rows)} "
            f"rollouts), and rollout.max_logprob_gap is {settings.max_logprob_gap:g}: the engine "
            "has other weights, another dtype or other logprobs (vLLM: --logprobs-mode "
            "processed_logprobs); nothing was kept"
        )
    return {"logprob_gap": gap.mean, "logprob_gap_max": gap.largest}


def _spread(context: StageContext, parts: Sequence[Part], count: int) -> list[dict[str, Any]]:
    """Return `count` rows of these parts, or all, evenly spread; reads only parts that have one."""
    total = sum(part.rows for part in parts)
    wanted = {index * total // min(count, total) for index in range(min(count, total))}
    found: list[dict[str, Any]] = []
    first = 0
    for part in parts:
        here = sorted(index - first for index in wanted if first <= index < first + part.rows)
        if here:
            frame = read_parquet("trace_tokens", context.store.local(part.path))
            found += frame[here].to_dicts()
        first += part.rows
    return found


def _finish(context: StageContext, number: int, parts: Sequence[Part]) -> None:
    path = paths.shard(STAGE.name, context.key, number)
    data = Shard(parts=tuple(parts)).to_bytes()
    try:
        context.store.create(path, data)
    except AlreadyExists:  # the record of a damaged shard
        context.store.replace(path, data)


rollout = StageTask(STAGE, compute)
