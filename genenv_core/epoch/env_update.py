"""The generations of D_env that an update of pi_env learns from, and their weights."""

from __future__ import annotations

import polars as pl

from genenv_core.algorithm.rwr import normalised_weights
from genenv_core.epoch.rows import UpdateRows, frame
from genenv_core.types import Policy
from schemas.enums import MixtureShare


def env_rows(
    pools: pl.DataFrame, generations: pl.DataFrame, *, epoch: int, lambda_: float
) -> UpdateRows:
    """Return the rows of an update of pi_env: those the k_min filter kept, weighted by R_env.

    `pools` are rows of D_env of the window's epochs, with this one; `generations` are the texts.
    """
    rows = pools.filter(pl.col("kept"))
    rows = rows.with_columns(
        weight=pl.Series(
            normalised_weights(rows["r_env"].to_list(), lambda_=lambda_), dtype=pl.Float64
        )
    )
    training = rows.join(
        generations.select("generation_id", "prompt_ids", "token_ids"),
        on="generation_id",
        maintain_order="left",
    ).select(
        pl.col("generation_id").alias("row_id"),
        "prompt_ids",
        pl.col("token_ids").alias("completion_ids"),
        "weight",
    )
    samples = [
        {
            "row_id": row["generation_id"],
            "policy": Policy.ENV.value,
            "epoch": epoch,
            "source": (MixtureShare.NEW if row["epoch"] == epoch else MixtureShare.HISTORY).value,
            "policy_version": row["env_policy_version"],
            "weight": row["weight"],
        }
        for row in rows.iter_rows(named=True)
    ]
    return UpdateRows(training, frame("update_samples", samples))
