"""The generations that an update of pi_env learns from, and those along which it computes its KL.

pi_env learns from rows of D_env that the filter kept. The filter chose them by reward, from several
epochs perhaps, so they are no samples of pi_env. The KL to pi_env^0 is an expectation under pi_env
itself: the update computes it along what pi_env wrote in this epoch, kept or rejected alike. So the
KL does not see what pi_env has ceased to write. Rehearsal does (Robins, Connection Science 7,
1995): a share of the rows are texts of pi_env^0, whose likelihood is the KL the other way around,
but for a constant.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import polars as pl

from genenv_core.algorithm.pay.weights import normalised_weights
from genenv_core.algorithm.reward import r_env
from genenv_core.algorithm.spread import evenly
from genenv_core.config.sections.curriculum import CurriculumConfig
from genenv_core.config.sections.updates import RwrConfig
from genenv_core.epoch.rows import UpdateRows, frame
from genenv_core.types import FinishReason, Policy
from schemas.enums import MixtureShare


def on_policy(generations: pl.DataFrame, *, epoch: int) -> pl.DataFrame:
    """Return the rows of `generations` that pi_env wrote in an epoch, without failed requests."""
    whole = pl.col("finish_reason") != FinishReason.ERROR.value
    return generations.filter((pl.col("epoch") == epoch) & whole)


def row_weights(
    kept: pl.DataFrame,
    tasks: pl.DataFrame,
    *,
    target: float,
    rwr: RwrConfig,
    curriculum: CurriculumConfig,
) -> list[float]:
    """Return the weight of each row of D_env that an update learns from, in order.

    A row has its stored pay. Where pay is R_env and the target is not alpha, every row, also of
    earlier epochs, gets R_env of its skill with the target in place of alpha. A generation with
    several tasks has their mean skill, and the family of the task that its row names: the first
    attempted.
    """
    if rwr.pay == "alpha" and target != curriculum.alpha:
        skills = kept.select(pl.coalesce("skill", "p_hat")).to_series()
        paid = [r_env(skill, alpha=target, beta=curriculum.beta) for skill in skills]
    else:
        paid = kept.select(pl.coalesce("pay", "r_env")).to_series().to_list()
    families = None
    if rwr.weight_by == "family":
        labels = tasks.select("task_id", "family")
        named = kept.join(labels, on="task_id", how="left", maintain_order="left")
        families = named["family"].to_list()
    return normalised_weights(paid, lambda_=rwr.lambda_, families=families)


def rehearsed(
    first: pl.DataFrame, learned: pl.DataFrame, *, share: float, seed: int
) -> pl.DataFrame:
    """Draw texts of the first pi_env that are not in `learned`; return them in their order.

    Their number makes them `share` of the update's rows, rounded; fewer where there are fewer.
    """
    known = learned["generation_id"].implode()
    others = first.filter(~pl.col("generation_id").is_in(known))
    count = min(others.height, round(learned.height * share / (1 - share)))
    drawn = np.random.default_rng(seed).choice(others.height, size=count, replace=False)
    return others[sorted(drawn.tolist())]


def _share(row: Mapping[str, Any], epoch: int, drawn: Collection[str]) -> str:
    """Return why a text is in the update; `drawn` are the ids of the rehearsed ones."""
    if row["generation_id"] in drawn:
        return MixtureShare.REHEARSAL.value
    return (MixtureShare.NEW if row["epoch"] == epoch else MixtureShare.HISTORY).value


def env_rows(
    pools: pl.DataFrame,
    generations: pl.DataFrame,
    tasks: pl.DataFrame,
    *,
    first: pl.DataFrame | None,
    epoch: int,
    target: float,
    seed: int,
    rwr: RwrConfig,
    curriculum: CurriculumConfig,
) -> UpdateRows:
    """Return the rows of an update of pi_env: those that the k_min filter kept, weighted by pay.

    After them come the rows that only the KL uses, with weight 0. The result is empty without a row
    to learn from, and without a text of this epoch.

    Args:
        pools: rows of D_env of the window's epochs, with this one.
        generations: the texts of those epochs.
        tasks: the tasks in these texts.
        first: texts of the first pi_env that became valid tasks; None without rehearsal.
        epoch: number of the round.
        target: skill that the weights reward; see `tracked_target`.
        seed: of the draw from `first`.
        rwr: temperature and families of the weights, and the most rows for the KL, which are spread
            evenly over the epoch's.
        curriculum: alpha and beta of R_env.
    """
    kept, fresh = pools.filter(pl.col("kept")), on_policy(generations, epoch=epoch)
    if fresh.is_empty():
        kept = kept.clear()
    weights = row_weights(kept, tasks, target=target, rwr=rwr, curriculum=curriculum)
    learned = kept.select("generation_id", weight=pl.Series(weights, dtype=pl.Float64))
    drawn: set[str] = set()
    if first is not None:
        again = rehearsed(first, learned, share=rwr.rehearsal, seed=seed)
        learned = pl.concat([learned, again.select("generation_id", weight=pl.lit(1.0))])
        drawn = set(again["generation_id"])
        generations = pl.concat([generations, again]).unique("generation_id", maintain_order=True)
    leash = fresh[evenly(fresh.height, min(rwr.kl_rows, fresh.height) if weights else 0)]
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
            "source": _share(row, epoch, drawn),
            "policy_version": row["env_policy_version"],
            "weight": row["weight"],
            "leash": row["leash"],
        }
        for row in rows.iter_rows(named=True)
    ]
    return UpdateRows(training, frame("update_samples", samples))
