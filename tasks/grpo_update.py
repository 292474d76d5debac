"""Stage `grpo_update`: draws this update's groups from D_train and trains pi_agent on them."""

from __future__ import annotations

from typing import Any

import polars as pl

from genenv_core.algorithm.advantages import group_advantages
from genenv_core.algorithm.mixture import Group, admissible, draw
from genenv_core.algorithm.stats import mean, sample_std
from genenv_core.training.base import GrpoRequest, TrainerCheckpoints
from schemas.enums import PolicyName, PoolSource
from tasks.rows import frame
from tasks.services import trainer
from tasks.stage import COMPUTE_FIELDS, Stage, StageContext, StageTask, log

STAGE = Stage(
    "grpo_update",
    ("tasks.grpo_update", "genenv_core.training.grpo"),
    ("mixture", "grpo", "training", "rollout.n", "rollout.temperature", *COMPUTE_FIELDS),
    ("torch", "transformers", "trl", "accelerate", "peft"),
)


def compute(context: StageContext) -> dict[str, Any]:
    """Train, or say why there is nothing to train on; either way leave a row."""
    if not context.inputs["train"]:
        return _skip(context, "this arm does not train pi_agent")
    rows = _drawn(context)
    if rows.is_empty():
        return _skip(context, "no group of D_train carries a signal in this epoch")
    config = context.config
    rewards = rows["reward"].to_list()
    context.out.table("update_samples", _samples(context, rows))
    path = context.work / "rows.parquet"
    _training_rows(context, rows).write_parquet(path)
    context.progress(0, config.grpo.passes, "passes")
    result = trainer().grpo(
        GrpoRequest(
            checkpoint=context.checkpoint("agent"),
            output=context.work / "agent",
            rows=path,
            settings=config.grpo,
            training=config.training,
            gradient_checkpointing=context.execution.gradient_checkpointing == "full",
            group_size=config.rollout.n,
            temperature=config.rollout.temperature,
            seed=context.seed_for("train") % 2**31,
            threads=config.compute.threads,
            checkpoints=TrainerCheckpoints(
                folder=context.durable(), seconds=context.execution.checkpoint_seconds
            ),
        )
    )
    if result.resumed_at:
        log.info("stage=%s epoch=%d resumed_at=%d", STAGE.name, context.epoch, result.resumed_at)
    context.out.checkpoint("agent", result.checkpoint)
    return {
        "action": result.action,
        "note": result.note,
        "steps": result.steps,
        "groups": rows["group_id"].n_unique(),
        "metrics": {
            **result.metrics,
            "reward_mean": mean(rewards),
            "reward_std": sample_std(rewards),
        },
    }


def _drawn(context: StageContext) -> pl.DataFrame:
    """Return the rows of D_train in this update, whole groups adjacent, in drawn order."""
    config = context.config
    current = context.checkpoint_ref("agent").policy_version
    new = context.frame("pool", "d_train")
    old = context.frame("history_pools", "d_train").filter(
        pl.col("policy_version").map_elements(
            lambda v: admissible(v, current=current, max_age=config.mixture.max_policy_age),
            return_dtype=pl.Boolean,
        )
    )
    rows = pl.concat([new, old.with_columns(source=pl.lit(PoolSource.HISTORY.value))])
    groups = [
        Group(group, PoolSource(source), version)
        for group, source, version in rows.select("group_id", "source", "policy_version")
        .unique(maintain_order=True)
        .iter_rows()
    ]
    # The pool admits groups by the filter of their own epoch; one with equal rewards never trains.
    drawn = draw(
        groups,
        shares={
            PoolSource.NEW: config.mixture.new,
            PoolSource.BASE: config.mixture.base,
            PoolSource.HISTORY: config.mixture.history,
        },
        max_groups=config.grpo.max_groups,
        seed=context.seed_for("mixture"),
    )
    order = pl.DataFrame(
        {"group_id": [group.group_id for group in drawn]}, schema={"group_id": pl.String}
    )
    return order.join(rows, on="group_id", maintain_order="left_right")


def _training_rows(context: StageContext, rows: pl.DataFrame) -> pl.DataFrame:
    tokens = pl.concat(
        [context.frame("traces", "trace_tokens"), context.frame("history_traces", "trace_tokens")]
    )
    return (
        rows.select("group_id", "trace_id", "reward")
        .join(tokens, on="trace_id", maintain_order="left")
        .select(
            "group_id",
            "prompt_ids",
            pl.col("token_ids").alias("completion_ids"),
            "logprobs",
            "loss_mask",
            "reward",
        )
    )


def _samples(context: StageContext, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the record of which rows this update used, so a checkpoint can be traced to them."""
    scale = context.config.grpo.scale_rewards == "group"
    samples: list[dict[str, Any]] = []
    for (group,), members in rows.group_by("group_id", maintain_order=True):
        advantages = group_advantages(members["reward"].to_list(), scale=scale)
        for member, advantage in zip(members.iter_rows(named=True), advantages, strict=True):
            samples.append(
                {
                    "row_id": member["trace_id"],
                    "policy": PolicyName.AGENT.value,
                    "epoch": context.epoch,
                    "group_id": group,
                    "source": member["source"],
                    "policy_version": member["policy_version"],
                    "advantage": advantage,
                }
            )
    return frame("update_samples", samples)


def _skip(context: StageContext, why: str) -> dict[str, Any]:
    context.out.table("update_samples", frame("update_samples", []))
    return {"action": "skipped", "note": why, "steps": 0, "groups": 0, "metrics": {}}


grpo_update = StageTask(STAGE, compute)
