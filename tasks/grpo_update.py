"""Stage `grpo_update`: draws this update's groups from D_train and trains pi_agent on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

from genenv_core.algorithm.mixture import step_count
from genenv_core.config.sections.updates import AgentUpdateConfig
from genenv_core.domains.shares import Shares
from genenv_core.epoch.agent_update import DomainsOfTasks, agent_rows
from genenv_core.epoch.rows import UpdateRows
from genenv_core.importing import load
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef
from genenv_core.training.updates.table import agent_kind
from tasks.placement.task import StageTask
from tasks.policies.update import update, without
from tasks.stage import COMPUTE_FIELDS, FurtherWork, Stage, StageContext

ATTRIBUTION = "tasks.policies.attribution"
"""The module that measures what groups teach, for updates with `grpo.attribution`."""

USUAL = agent_kind(AgentUpdateConfig())
"""The update by the default algorithm."""

STAGE = Stage(
    "grpo_update",
    ("tasks.grpo_update", USUAL.trainer, USUAL.rule),
    ("mixture", "grpo", "training", "rollout.n", "rollout.temperature", *COMPUTE_FIELDS),
    ("torch", "transformers", "trl", "accelerate", "peft"),
    (
        FurtherWork("agent_update.own", (), ("agent_update",)),
        FurtherWork(
            "grpo.attribution",
            (ATTRIBUTION,),
            (
                "domain",
                "models.agent_chat_template_kwargs",
                "rollout.max_tokens",
                "rollout.max_turns",
                "rollout.max_length",
                "rollout.top_p",
                "tools.max_errors",
            ),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class SharedDraw:
    """Several domains with their weights, and where the tasks of earlier epochs stand."""

    names: Sequence[str]
    weights: Sequence[float]
    tasks: Sequence[ArtifactRef]


@dataclass(frozen=True, slots=True)
class GrpoUpdateInputs:
    """The agent, whether to train it, and the rows of this epoch and of earlier ones.

    `agent_initial` is the first agent where the KL is to it. `bootstrap` has the validation tasks
    that measure the influence of groups; None without that measurement. `domains` share the groups
    of earlier epochs; None in a run of one domain.
    """

    agent: CheckpointRef
    pool: ArtifactRef
    traces: ArtifactRef
    history_pools: Sequence[ArtifactRef]
    history_traces: Sequence[ArtifactRef]
    train: bool
    agent_initial: CheckpointRef | None = None
    bootstrap: ArtifactRef | None = None
    domains: SharedDraw | None = None


def compute(context: StageContext[GrpoUpdateInputs]) -> dict[str, Any]:
    """Train pi_agent; return the facts."""
    config, initial, inputs = context.config, context.inputs.agent_initial, context.inputs
    rows = _rows(context) if inputs.train else None
    chosen = _chosen(context)
    request = partial(
        agent_kind(chosen).request,
        **agent_kind(chosen).asked(chosen),
        settings=config.grpo,
        training=config.training,
        group_size=config.rollout.n,
        temperature=config.rollout.temperature,
        reference=None if initial is None else context.checkpoint(initial),
    )
    if inputs.bootstrap is not None:
        load(ATTRIBUTION).attribute(context, rows, request)
    return update(
        context,
        inputs.agent,
        rows,
        request,
        partial(step_count, passes=config.grpo.passes, per_step=config.grpo.groups_per_step),
        unit="groups",
        without_rows=without(inputs.pool, "no group of D_train carries a signal in this epoch"),
    )


def _chosen(context: StageContext[GrpoUpdateInputs]) -> AgentUpdateConfig:
    """Return the configured algorithm; the section is in the key only for an unusual one."""
    read = "agent_update" in context.stage.reads
    return context.config.agent_update if read else AgentUpdateConfig()


def _rows(context: StageContext[GrpoUpdateInputs]) -> UpdateRows:
    inputs, chosen = context.inputs, _chosen(context)
    tokens, traces, sequences = (
        pl.concat(context.frame(ref, table) for ref in (inputs.traces, inputs.history_traces))
        for table in ("trace_tokens", "traces", "trace_sequences")
    )
    return agent_rows(
        context.frame(inputs.pool, "d_train"),
        context.frame(inputs.history_pools, "d_train"),
        tokens,
        traces,
        epoch=context.epoch,
        policy_version=inputs.agent.policy_version,
        mixture=context.config.mixture,
        max_groups=context.config.grpo.max_groups,
        advantages=load(agent_kind(chosen).rule).advantages(context.config.grpo, chosen),
        seed=context.seed_for("mixture"),
        domains=_domains(context, inputs.domains),
        sequences=sequences,
    )


def _domains(
    context: StageContext[GrpoUpdateInputs], shared: SharedDraw | None
) -> DomainsOfTasks | None:
    if shared is None:
        return None
    shares = Shares(dict(zip(shared.names, shared.weights, strict=True)))
    return DomainsOfTasks(shares, context.frame(shared.tasks, "tasks"))


grpo_update = StageTask(STAGE, GrpoUpdateInputs, compute)
