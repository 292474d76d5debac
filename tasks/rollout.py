"""Stage `rollout`: n attempts of pi_agent at each new task and at a share of the base tasks.

The stage commits groups in shards. After a crash it reuses finished shards, and samples the others
again from the same seeds. Where tools take time, the attempts of all shards advance independently,
and shards finish in any order.

With a refill, rounds of tasks of the reserve follow while groups with a signal are lacking. A round
begins once all shards before it are finished, and their rows decide its size.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Self

import polars as pl

from genenv_core.algorithm.spread import spread
from genenv_core.domains.protocol import shares_of
from genenv_core.epoch.attempting.choosing import reserve_tasks
from genenv_core.epoch.attempting.rounds import Refill
from genenv_core.epoch.attempting.windows import Window
from genenv_core.epoch.attempts import attempt, attempted, scored_again
from genenv_core.epoch.rows import to_tasks
from genenv_core.epoch.trouble import broken_attempts, endless_attempts, errors_of
from genenv_core.errors import EngineError
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef, Part
from genenv_core.storage.records.parquet import read_parquet
from genenv_core.types import Task
from schemas.registry import empty
from tasks.placement.task import StageTask
from tasks.policies.engine import SAMPLING_FIELDS
from tasks.policies.sampler import Sampler, sampler
from tasks.policies.scoring import SCORING_FIELDS, arithmetic_of
from tasks.stage import FurtherWork, Stage, StageContext
from tasks.stage.shards import Shards

log = logging.getLogger("genenv.stage")

REFILLING = "genenv_core.epoch.attempting.refilling"
"""Module of the further work of a stage with a refill."""

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
    (
        FurtherWork(
            "refill.groups",
            (REFILLING,),
            (
                "refill",
                "generation.tasks",
                "generation.candidates",
                "curriculum.alpha",
                "curriculum.beta",
                "curriculum.level",
                "curriculum.k_min",
                "curriculum.filter_agent",
                "curriculum.least_n",
            ),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class RolloutInputs:
    """The tasks and the agent; `simulator` is the pi_env that plays simulated tools.

    `window` says which tasks of a set are this epoch's, with None all of them.
    """

    tasks: ArtifactRef
    bootstrap: ArtifactRef
    agent: CheckpointRef
    simulator: CheckpointRef | None = None
    window: Window | None = None


def compute(context: StageContext[RolloutInputs]) -> dict[str, Any]:
    """Attempt every task of the epoch, and commit each shard once it is finished."""
    config = context.config
    tasks = attempted(
        context.frame(context.inputs.tasks, "tasks"),
        context.frame(context.inputs.bootstrap, "tasks"),
        config.mixture,
        context.seed_for,
        context.inputs.window,
        shares_of(context.domain()),
    )
    with _Attempts(context) as attempts:
        refilled = _refilled(context, attempts, tasks)
    shards = attempts.shards
    made = shards.adopt()
    if not tasks:
        context.out.table("traces", empty("traces"))
        context.out.table("trace_tokens", empty("trace_tokens"))
    facts: dict[str, Any] = {
        "groups": len(attempts.tasks),
        "traces": len(attempts.tasks) * config.rollout.n,
        "metrics": _compared(context, shards, made),
        **refilled,
    }
    troubles = _troubles(context, shards)
    for said in troubles.values():
        log.warning("stage=%s %s", STAGE.name, said)
    return facts | troubles


class _Attempts:
    """The attempts of an epoch in shards; opens the engine when the first shard is missing."""

    def __init__(self, context: StageContext[RolloutInputs]) -> None:
        self._context, self._opened = context, ExitStack()
        self._sampling: Sampler | None = None
        self.tasks: list[Task] = []
        self.shards = Shards(context, 0, context.config.rollout.shard_groups)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    def played(self, tasks: Sequence[Task]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Attempt further tasks; return their rows of `traces` and `trace_tokens`."""
        added = self.play(tasks)
        return self.shards.rows("traces", added), self.shards.rows("trace_tokens", added)

    def play(self, tasks: Sequence[Task]) -> list[int]:
        """Attempt further tasks, without finished shards; return the numbers of their shards."""
        context, shards, agent = self._context, self.shards, self._context.inputs.agent
        self.tasks += tasks
        added = shards.extend(len(tasks))
        context.progress(shards.tasks_done, len(self.tasks), "groups")
        if not shards.missing:
            return added
        sampling = self._sampling = self._sampling or self._opened.enter_context(
            sampler(context, agent, context.inputs.simulator)
        )
        for number, tables in attempt(
            sampling,
            self.tasks,
            shards.missing,
            context.config.rollout,
            epoch=context.epoch,
            scope=context.scope,
            policy_version=agent.policy_version,
            decode=sampling.chat.decode,
            seed_for=context.seed_for,
        ):
            shards.finish(number, tables)
            context.progress(shards.tasks_done, len(self.tasks), "groups")
        return added


def _refilled(
    context: StageContext[RolloutInputs], attempts: _Attempts, tasks: Sequence[Task]
) -> dict[str, Any]:
    """Attempt the tasks, then those that a refill takes from the reserve; return its facts."""
    if "refill" not in context.stage.reads:
        attempts.play(tasks)
        return {}
    # By name: without a refill the key has neither its code nor that of `score` and `filter`.
    refilling: Any = import_module(REFILLING)
    refill: Refill = refilling.refill_of(context.config)
    facts: dict[str, int] = refilling.refilled(
        refill,
        tasks,
        to_tasks(reserve_tasks(context.frame(context.inputs.tasks, "tasks"))),
        attempts.played,
        context.domain(),
        epoch=context.epoch,
        curriculum=context.config.curriculum,
    )
    counts = " ".join(f"{name}={count}" for name, count in facts.items())
    log.info("stage=%s epoch=%d wanted=%d %s", STAGE.name, context.epoch, refill.groups, counts)
    return facts


def _troubles(context: StageContext[RolloutInputs], shards: Shards) -> dict[str, str]:
    traces, epoch = shards.rows("traces", shards.numbers), context.epoch
    if traces.is_empty():
        return {}
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

    Writes the trainer's as `trainer_logprobs`. Above the configured bound it forgets the shards,
    because the next attempt must sample again, and raises EngineError.
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
