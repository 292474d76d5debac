"""Stage `pool`: the rows that an epoch adds to D_train and D_env."""

from __future__ import annotations

import polars as pl

from genenv_core.algorithm.pay.rules import PaidTask, pays
from genenv_core.algorithm.pay.weights import raw_weight
from genenv_core.algorithm.reward import judged_p_hat, judged_skill
from genenv_core.algorithm.success.belief import predicted
from genenv_core.config.sections.curriculum import Level
from genenv_core.config.sections.updates import PayRule
from genenv_core.epoch.rows import Output, new_groups, shaped
from genenv_core.types import Policy, TaskSource
from schemas.enums import PooledTask


def pools(
    *,
    tasks: pl.DataFrame,
    traces: pl.DataFrame,
    scores: pl.DataFrame,
    task_scores: pl.DataFrame,
    selections: pl.DataFrame,
    level: Level,
    pay: PayRule,
    lambda_: float,
    scale: bool,
) -> Output:
    """Return the epoch's rows of `d_train` and `d_env`; the frames are the epoch's tables.

    `scale` says whether an agent update divides advantages by the group's standard deviation.
    """
    d_train = _d_train(traces, scores, task_scores, selections)
    d_env = _d_env(_paid(tasks, task_scores, level, pay, scale), selections, lambda_)
    facts = {
        "new_groups": new_groups(task_scores).height,
        "d_train": d_train.height,
        "d_env": d_env.height,
        "d_env_kept": int(d_env["kept"].sum()),
    }
    return Output({"d_train": d_train, "d_env": d_env}, facts)


def _d_train(
    traces: pl.DataFrame,
    scores: pl.DataFrame,
    task_scores: pl.DataFrame,
    selections: pl.DataFrame,
) -> pl.DataFrame:
    """Return the traces with a verdict of the groups that the agent update may use."""
    kept = _of(selections, Policy.AGENT).filter("kept")
    origin = (
        pl.when(pl.col("source") == TaskSource.BASE.value)
        .then(pl.lit(PooledTask.BASE.value))
        .otherwise(pl.lit(PooledTask.NEW.value))
    )
    rows = (
        traces.join(kept, on="group_id", how="semi", maintain_order="left")
        .join(
            scores.select("trace_id", "reward", "success"),
            on="trace_id",
            how="inner",
            maintain_order="left",
        )
        .join(task_scores.select("group_id", "source"), on="group_id", maintain_order="left")
        .with_columns(source=origin)
    )
    return shaped("d_train", rows)


def _paid(
    tasks: pl.DataFrame, task_scores: pl.DataFrame, level: Level, pay: PayRule, scale: bool
) -> pl.DataFrame:
    """Return the attempted tasks of pi_env with p_hat and skill of the level, R_env and pay."""
    rated = task_scores.select(
        "task_id",
        "group_id",
        "r_env",
        "successes",
        "n",
        p_hat=judged_p_hat(level),
        skill=judged_skill(level),
    )
    rows = tasks.filter(pl.col("generation_id").is_not_null()).join(
        rated, on="task_id", maintain_order="left"
    )
    paid = pays(
        pay,
        [
            PaidTask(
                row["r_env"],
                row["successes"],
                row["n"],
                row["chance"] or 0.0,
                predicted(row["predicted_p"], row["predicted_sd"]),
            )
            for row in rows.iter_rows(named=True)
        ],
        scale=scale,
    )
    return rows.with_columns(pay=pl.Series(paid, dtype=pl.Float64))


def _d_env(paid: pl.DataFrame, selections: pl.DataFrame, lambda_: float) -> pl.DataFrame:
    """Return the generations with attempted tasks, with their weight and the filter's decision.

    A generation with several tasks is one row with their mean pay. The row is kept where the filter
    keeps one of its tasks.
    """
    kept = _of(selections, Policy.ENV).select("group_id", "kept")
    rows = (
        paid.join(kept, on="group_id", maintain_order="left")
        .group_by("generation_id", maintain_order=True)
        .agg(
            pl.first("epoch", "task_id", "context_id", "env_policy_version"),
            pl.mean("p_hat", "skill", "r_env", "pay"),
            pl.any("kept"),
        )
        .with_columns(
            weight_raw=pl.col("pay").map_elements(
                lambda pay: raw_weight(pay, lambda_=lambda_), return_dtype=pl.Float64
            )
        )
    )
    return shaped("d_env", rows)


def _of(selections: pl.DataFrame, policy: Policy) -> pl.DataFrame:
    return selections.filter(pl.col("update") == policy.value)
