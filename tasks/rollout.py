"""Stage `rollout`: n attempts of pi_agent at each new task and at a share of the base tasks.

Groups are committed in shards. After a crash, finished shards are reused, and the others are
sampled again from the same seeds. Where tools take time, the attempts of all shards advance
independently, and shards finish in any order.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from genenv_core.algorithm.spread import spread
from genenv_core.domains.protocol import shares_of
from genenv_core.epoch.attempts import attempt, attempted, scored_again
from genenv_core.epoch.trouble import broken_attempts, endless_attempts, errors_of
from genenv_core.epoch.windows import Window
from genenv_core.errors import EngineError
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef, Part
from genenv_core.storage.records.parquet import read_parquet
from schemas.registry import empty
from tasks.policies.engine import SAMPLING_FIELDS
from tasks.policies.sampler import sampler
from tasks.policies.scoring import SCORING_FIELDS, arithmetic_of
from tasks.stage import Stage, StageContext
from tasks.stage.shards import Shards
from tasks.stage.task import StageTask

log = logging.getLogger("genenv.stage")

STAGE = Stage(
    "rollout",
    ("tasks.rollout",),
    (
        "domain",
        "models.agent_chat_template_kwargs",
        "models.env_chat_template_kwargs",
        "rollout",
        "tools",
        "mixture.new",
        "mixture.base",
        *SAMPLING_FIELDS,
        *SCORING_FIELDS,
    ),
    ("torch", "transformers"),
)


@dataclass(frozen=True, slots=True)
class RolloutInputs:
    """The tasks and the agent; `simulator` is the pi_env that plays simulated tools.

    `window` says which tasks of a set are this epoch's; None: all of them.
    """

    tasks: ArtifactRef
    bootstrap: ArtifactRef
    agent: CheckpointRef
    simulator: CheckpointRef | None = None
    window: Window | None = None


def compute(context: StageContext[RolloutInputs]) -> dict[str, Any]:
    """Attempt every task of the epoch; each shard is committed once it is finished."""
    config = context.config
    tasks = attempted(
        context.frame(context.inputs.tasks, "tasks"),
        context.frame(context.inputs.bootstrap, "tasks"),
        config.mixture,
        context.seed_for,
        context.inputs.window,
        shares_of(context.domain()),
    )
    shards = Shards(context, len(tasks), config.rollout.shard_groups)
    context.progress(shards.tasks_done, len(tasks), "groups")
    if shards.missing:
        agent, simulator = context.inputs.agent, context.inputs.simulator
        with sampler(context, agent, simulator) as sampling:
            for number, tables in attempt(
                sampling,
                tasks,
                shards.missing,
                config.rollout,
                epoch=context.epoch,
                scope=context.scope,
                policy_version=agent.policy_version,
                decode=sampling.chat.decode,
                seed_for=context.seed_for,
            ):
                shards.finish(number, tables)
                context.progress(shards.tasks_done, len(tasks), "groups")
    made = shards.adopt()
    if not tasks:
        context.out.table("traces", empty("traces"))
        context.out.table("trace_tokens", empty("trace_tokens"))
    facts: dict[str, Any] = {
        "groups": len(tasks),
        "traces": len(tasks) * config.rollout.n,
        "metrics": _compared(context, shards, made),
    }
    troubles = _troubles(context, made)
    for said in troubles.values():
        log.warning("stage=%s %s", STAGE.name, said)
    return facts | troubles


def _troubles(context: StageContext[RolloutInputs], made: Sequence[Part]) -> dict[str, str]:
    parts = [part for part in made if part.table == "traces"]
    if not parts:
        return {}
    read = [read_parquet("traces", context.store.local(part.path)) for part in parts]
    traces, epoch = pl.concat(read), context.epoch
    reasons = traces["finish_reason"].to_list()
    settings = context.config.rollout
    broken = broken_attempts(traces, epoch)
    if not broken and (few := errors_of(traces, epoch)):
        log.warning("stage=%s %s", STAGE.name, few)
    return broken | endless_attempts(reasons, f"epoch {epoch}", settings)


def _compared(
    context: StageContext[RolloutInputs], shards: Shards, made: Sequence[Part]
) -> dict[str, float]:
    """Return how far the engine's logprobs are from the trainer's, on rows spread over the stage.

    The trainer's are written as `trainer_logprobs`. Raises EngineError above the configured bound.
    It first forgets the shards, because the next attempt must sample again.
    """
    settings = context.config.rollout
    parts = [part for part in made if part.table == "trace_tokens"]
    rows: list[dict[str, Any]] = []
    chosen = spread([part.rows or 0 for part in parts], settings.logprob_rows)
    for part, indices in zip(parts, chosen, strict=True):
        if indices:  # reads only the parts needed
            stored = read_parquet("trace_tokens", context.store.local(part.path))
            rows += stored[indices].to_dicts()
    if not rows:
        return {}
    from genenv_core.engines.transformers.gap import Sampled, logprob_gap  # loads torch

    gap = logprob_gap(
        context.checkpoint(context.inputs.agent),
        [
            Sampled(row["prompt_ids"], row["token_ids"], row["logprobs"], row["loss_mask"])
            for row in rows
        ],
        temperature=settings.temperature,
        arithmetic=arithmetic_of(context.config),
    )
    if gap is None:
        return {}
    if gap.mean > settings.max_logprob_gap:
        shards.forget()
        raise EngineError(
            f"stage {STAGE.name} of epoch {context.epoch}: the engine's logprobs differ from the "
            f"trainer's by {gap.mean:.4f} nats a token ({gap.tokens} tokens of {len(rows)} "
            f"rollouts), and rollout.max_logprob_gap is {settings.max_logprob_gap:g}: the engine "
            "has other weights, another dtype or other logprobs (vLLM: --logprobs-mode "
            "processed_logprobs); nothing was kept"
        )
    context.out.table("trainer_logprobs", scored_again(rows, gap.trainer, context.epoch))
    return {"logprob_gap": gap.mean, "logprob_gap_max": gap.largest}


rollout = StageTask(STAGE, RolloutInputs, compute)
