"""The groups of D_train that an update of pi_agent learns from, and their advantages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from genenv_core.algorithm.mixture import Group, admissible, draw
from genenv_core.config.sections.updates import MixtureConfig
from genenv_core.domains.shares import Shares
from genenv_core.epoch.rows import UpdateRows, frame
from genenv_core.types import FinishReason, Policy
from schemas.enums import MixtureShare

Advantages = Callable[[Sequence[Sequence[float]]], Sequence[Sequence[float]]]
"""Computes the advantage of each rollout from the rewards of all groups of an update, by group."""


@dataclass(frozen=True, slots=True)
class DomainsOfTasks:
    """The shares of several domains, and the tasks of the stored groups: `task_id`, `family`."""

    shares: Shares
    tasks: pl.DataFrame


def agent_rows(
    new: pl.DataFrame,
    stored: pl.DataFrame,
    tokens: pl.DataFrame,
    traces: pl.DataFrame,
    *,
    epoch: int,
    policy_version: int,
    mixture: MixtureConfig,
    max_groups: int,
    advantages: Advantages,
    seed: int,
    domains: DomainsOfTasks | None = None,
    sequences: pl.DataFrame | None = None,
) -> UpdateRows:
    """Return the rows of an update of pi_agent, whole groups adjacent, in drawn order.

    Each sequence of an attempt is a row; the rows of an attempt are adjacent and in order. They
    share its reward, and whether a limit ended it. An attempt is drawn with all of its sequences.

    `new` are rows of D_train of this epoch, `stored` those of earlier ones, `tokens` and
    `traces` the tables `trace_tokens` and `traces` of both. `policy_version` is the agent's now.
    The update draws at most `max_groups`; the algorithm computes `advantages`. `domains` are those
    of a run of several, which share the stored groups. `sequences` is the table `trace_sequences`
    of both. Where the drawn attempts have no further sequence, rows have no column `sequence`.
    """
    current, max_age = policy_version, mixture.max_policy_age
    young = [admissible(v, current=current, max_age=max_age) for v in stored["policy_version"]]
    history = stored.filter(pl.Series(young, dtype=pl.Boolean)).with_columns(
        source=pl.lit(MixtureShare.HISTORY.value)
    )
    rows = _drawn(pl.concat([new, history]), mixture, max_groups, seed, domains)
    ends = traces.select("trace_id", truncated=pl.col("finish_reason") == FinishReason.LENGTH.value)
    attempts = tokens.join(ends, on="trace_id", maintain_order="left")
    training = rows.join(attempts, on="trace_id", maintain_order="left")
    if sequences is not None:
        training = _with_further(training, sequences)
    training = training.rename({"token_ids": "completion_ids"}).select(
        "group_id",
        *("prompt_ids", "completion_ids", "logprobs", "loss_mask"),
        "reward",
        "truncated",
        *(["sequence"] if "sequence" in training.columns else []),
    )
    return UpdateRows(training, _samples(rows, epoch, advantages))


def _with_further(first: pl.DataFrame, sequences: pl.DataFrame) -> pl.DataFrame:
    """Return rows of attempts, each followed by the rows of its further sequences."""
    ids = ("prompt_ids", "token_ids", "logprobs", "loss_mask")
    placed = first.with_row_index("place").with_columns(sequence=pl.lit(0, pl.Int64))
    further = placed.drop("sequence", *ids).join(
        sequences.select("trace_id", "sequence", *ids), on="trace_id"
    )
    if further.is_empty():
        return first
    whole = pl.concat([placed, further.select(placed.columns)])
    return whole.sort("place", "sequence").drop("place")


def _drawn(
    rows: pl.DataFrame,
    mixture: MixtureConfig,
    max_groups: int,
    seed: int,
    domains: DomainsOfTasks | None,
) -> pl.DataFrame:
    of_task = dict(domains.tasks.select("task_id", "family").iter_rows()) if domains else {}
    shares = domains.shares if domains else Shares()
    groups = [
        Group(group, MixtureShare(source), version, shares.domain_of(of_task.get(task)))
        for group, source, version, task in rows.select(
            "group_id", "source", "policy_version", "task_id"
        )
        .unique(maintain_order=True)
        .iter_rows()
    ]
    # The pool admits groups by the filter of their epoch; one with equal rewards never trains.
    drawn = draw(
        groups,
        shares={
            MixtureShare.NEW: mixture.new,
            MixtureShare.BASE: mixture.base,
            MixtureShare.HISTORY: mixture.history,
        },
        max_groups=max_groups,
        seed=seed,
        domains=domains.shares if domains else None,
    )
    order = pl.Series("group_id", [group.group_id for group in drawn], dtype=pl.String).to_frame()
    return order.join(rows, on="group_id", maintain_order="left_right")


def _samples(rows: pl.DataFrame, epoch: int, advantages: Advantages) -> pl.DataFrame:
    by_group = rows.group_by("group_id", maintain_order=True).agg("reward")
    found = [one for group in advantages(by_group["reward"].to_list()) for one in group]
    samples = [
        {
            "row_id": row["trace_id"],
            "policy": Policy.AGENT.value,
            "epoch": epoch,
            "group_id": row["group_id"],
            "source": row["source"],
            "policy_version": row["policy_version"],
            "advantage": advantage,
        }
        for row, advantage in zip(rows.iter_rows(named=True), found, strict=True)
    ]
    return frame("update_samples", samples)
