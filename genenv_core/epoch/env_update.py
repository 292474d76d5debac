"""The generations that an update of pi_env learns from, and those that its KL is along.

It learns from rows of D_env that the filter kept. Those are a choice by reward, from several epochs
perhaps, and so no samples of pi_env. The KL to pi_env^0 is an expectation under pi_env itself: it
is computed along what pi_env wrote in this epoch, kept or rejected alike.
"""

from __future__ import annotations

import polars as pl

from genenv_core.algorithm.rwr import normalised_weights
from genenv_core.algorithm.spread import evenly
from genenv_core.epoch.rows import UpdateRows, frame
from genenv_core.types import FinishReason, Policy
from schemas.enums import MixtureShare


def on_policy(generations: pl.DataFrame, *, epoch: int) -> pl.DataFrame:
    """Return the rows of `generations` that pi_env wrote in an epoch; failed requests are none."""
    whole = pl.col("finish_reason") != FinishReason.ERROR.value
    return generations.filter((pl.col("epoch") == epoch) & whole)


def env_rows(
    pools: pl.DataFrame, generations: pl.DataFrame, *, epoch: int, lambda_: float, kl_rows: int
) -> UpdateRows:
    """Return the rows of an update of pi_env: those the k_min filter kept, weighted by R_env.

    After them come the rows that only the KL is along, with weight 0. There are no rows without one
    to learn from, or without one of this epoch.

    Args:
        pools: rows of D_env of the window's epochs, with this one.
        generations: the texts of those epochs.
        epoch: number of the round.
        lambda_: temperature of the weights.
        kl_rows: most rows for the KL, evenly spread over the epoch's.
    """
    kept, fresh = pools.filter(pl.col("kept")), on_policy(generations, epoch=epoch)
    if fresh.is_empty():
        kept = kept.clear()
    weights = normalised_weights(kept["r_env"].to_list(), lambda_=lambda_)
    learned = kept.select("generation_id", weight=pl.Series(weights, dtype=pl.Float64))
    leash = fresh[evenly(fresh.height, min(kl_rows, fresh.height) if weights else 0)]
    only_kl = leash.join(learned, on="generation_id", how="anti", maintain_order="left")
    rows = (
        pl.concat([learned, only_kl.select("generation_id", weight=pl.lit(0.0))])
        .join(generations, on="generation_id", maintain_order="left")
        .with_columns(leash=pl.col("generation_id").is_in(leash["generation_id"].implode()))
    )
    training = rows.select(
        pl.col("generation_id").alias("row_id"),
        "prompt_ids",
        pl.col("token_ids").alias("completion_ids"),
        "weight",
        "leash",
    )
    samples = [
        {
            "row_id": row["generation_id"],
            "policy": Policy.ENV.value,
            "epoch": epoch,
            "source": (MixtureShare.NEW if row["epoch"] == epoch else MixtureShare.HISTORY).value,
            "policy_version": row["env_policy_version"],
            "weight": row["weight"],
            "leash": row["leash"],
        }
        for row in rows.iter_rows(named=True)
    ]
    return UpdateRows(training, frame("update_samples", samples))
