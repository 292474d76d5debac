"""Stage `pool`: appends this epoch's rows to D_train and D_env.

A pool is the sequence of its epochs' parts, so appending costs what the new rows cost.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from genenv_core.algorithm.rwr import raw_weight
from genenv_core.types import TaskSource
from schemas.enums import PolicyName
from tasks.rows import frame
from tasks.score import judged_p_hat
from tasks.stage import Stage, StageContext, StageTask

STAGE = Stage("pool", ("tasks.pool",), ("rwr.lambda_", "curriculum.level"))


def compute(context: StageContext) -> dict[str, Any]:
    """Write the admitted rows of both pools."""
    traces = context.frame("traces", "traces")
    scores = context.frame("scores", "scores")
    groups = context.frame("scores", "task_scores")
    selections = context.frame("selections", "selections")
    agent_kept = selections.filter(
        (pl.col("update") == PolicyName.AGENT.value) & pl.col("kept")
    ).select("group_id")
    d_train = (
        traces.join(agent_kept, on="group_id", how="semi", maintain_order="left")
        .join(scores.select("trace_id", "reward", "success"), on="trace_id", maintain_order="left")
        .join(groups.select("group_id", "source"), on="group_id", maintain_order="left")
        .with_columns(
            source=pl.when(pl.col("source") == TaskSource.BASE.value)
            .then(pl.lit("base"))
            .otherwise(pl.lit("new"))
        )
    )
    context.out.table("d_train", _shaped("d_train", d_train))
    lambda_ = context.config.rwr.lambda_
    tasks = context.frame("tasks", "tasks").filter(pl.col("generation_id").is_not_null())
    env = selections.filter(pl.col("update") == PolicyName.ENV.value)
    env_kept = env.select("group_id", "kept")
    d_env = (
        tasks.join(
            groups.with_columns(p_hat=judged_p_hat(context.config.curriculum.level)).select(
                "task_id", "group_id", "p_hat", "r_env"
            ),
            on="task_id",
            maintain_order="left",
        )
        .join(env_kept, on="group_id", maintain_order="left")
        # A generation that holds several tasks is one row of D_env, paid with their mean.
        .group_by("generation_id", maintain_order=True)
        .agg(
            pl.first("epoch", "task_id", "context_id", "env_policy_version"),
            pl.mean("p_hat", "r_env"),
            pl.any("kept"),
        )
        .with_columns(
            weight_raw=pl.col("r_env").map_elements(
                lambda reward: raw_weight(reward, lambda_=lambda_), return_dtype=pl.Float64
            )
        )
    )
    context.out.table("d_env", _shaped("d_env", d_env))
    return {
        "d_train": d_train.height,
        "d_env": d_env.height,
        "d_env_kept": int(d_env["kept"].sum()),
    }


def _shaped(table: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of a table, in its order and types."""
    wanted = frame(table, []).schema
    return rows.select([pl.col(name).cast(dtype) for name, dtype in wanted.items()])


pool = StageTask(STAGE, compute)
