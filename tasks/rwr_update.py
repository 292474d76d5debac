"""Stage `rwr_update`: reward-weighted regression of pi_env on what D_env holds for it."""

from __future__ import annotations

from typing import Any

import polars as pl

from genenv_core.algorithm.rwr import normalised_weights, step_count
from genenv_core.training.base import RwrRequest, TrainerCheckpoints
from schemas.enums import PolicyName, PoolSource
from tasks.rows import frame
from tasks.services import trainer
from tasks.stage import COMPUTE_FIELDS, Stage, StageContext, StageTask, log

STAGE = Stage(
    "rwr_update",
    ("tasks.rwr_update", "genenv_core.training.rwr"),
    ("rwr", "training", *COMPUTE_FIELDS),
    ("torch", "transformers", "trl", "accelerate", "peft"),
)


def compute(context: StageContext) -> dict[str, Any]:
    """Train, or say why there is nothing to train on; either way leave a row."""
    if not context.inputs["train"]:
        return _skip(context, "this arm does not train pi_env")
    rows = context.frame("pools", "d_env").filter(pl.col("kept"))
    if rows.is_empty():
        return _skip(context, "no generation passed the k_min filter in this epoch")
    config = context.config
    rows = rows.with_columns(
        weight=pl.Series(normalised_weights(rows["r_env"].to_list(), lambda_=config.rwr.lambda_))
    )
    context.out.table("update_samples", _samples(context, rows))
    path = context.work / "rows.parquet"
    rows.join(
        context.frame("generations", "generations").select(
            "generation_id", "prompt_ids", pl.col("token_ids").alias("completion_ids")
        ),
        on="generation_id",
        maintain_order="left",
    ).select(
        pl.col("generation_id").alias("row_id"), "prompt_ids", "completion_ids", "weight"
    ).write_parquet(path)
    limits = {"steps": config.rwr.steps, "steps_per_row": config.rwr.steps_per_row}
    context.progress(0, step_count(rows.height, **limits), "steps")
    result = trainer().rwr(
        RwrRequest(
            checkpoint=context.checkpoint("env"),
            initial=context.checkpoint("env_initial"),
            output=context.work / "env",
            rows=path,
            settings=config.rwr,
            training=config.training.of_env,
            gradient_checkpointing=context.execution.gradient_checkpointing == "full",
            seed=context.seed_for("train") % 2**31,
            threads=config.compute.threads,
            checkpoints=TrainerCheckpoints(
                folder=context.durable(), seconds=context.execution.checkpoint_seconds
            ),
        )
    )
    if result.resumed_at:
        log.info("stage=%s epoch=%d resumed_at=%d", STAGE.name, context.epoch, result.resumed_at)
    context.out.checkpoint("env", result.checkpoint)
    return {
        "action": result.action,
        "note": result.note,
        "steps": result.steps,
        "rows": rows.height,
        "metrics": result.metrics,
    }


def _samples(context: StageContext, rows: pl.DataFrame) -> pl.DataFrame:
    samples = [
        {
            "row_id": row["generation_id"],
            "policy": PolicyName.ENV.value,
            "epoch": context.epoch,
            "source": (
                PoolSource.NEW if row["epoch"] == context.epoch else PoolSource.HISTORY
            ).value,
            "policy_version": row["env_policy_version"],
            "weight": row["weight"],
        }
        for row in rows.iter_rows(named=True)
    ]
    return frame("update_samples", samples)


def _skip(context: StageContext, why: str) -> dict[str, Any]:
    context.out.table("update_samples", frame("update_samples", []))
    return {"action": "skipped", "note": why, "steps": 0, "rows": 0, "metrics": {}}


rwr_update = StageTask(STAGE, compute)
