"""The pools, and what each update drew from them."""

from __future__ import annotations

import polars as pl

from genenv_core.types import Policy
from schemas.enums import MixtureShare, PooledTask
from schemas.tables import fields
from schemas.tables.fields import Table


class DTrain(Table, key=("trace_id",)):
    """One row a trace admitted to D_train, the agent's pool."""

    trace_id: str = fields.ident("Trace admitted.", unique=True)
    epoch: int = fields.count("Epoch of the rollout.")
    task_id: str = fields.ident("Task attempted.")
    group_id: str = fields.ident("Group of the rollout; groups are admitted whole.")
    policy_version: int = fields.count("Version of pi_agent that sampled it.")
    source: str = fields.label("Whether its task is new or a base task.", PooledTask)
    reward: float = fields.share("R_agent of the rollout.")
    success: bool = fields.flag("Whether the raw outcome is right.")


class DEnv(Table, key=("generation_id",), version=3, added={2: ("skill",), 3: ("pay",)}):
    """One row a generation admitted to D_env, pi_env's pool."""

    generation_id: str = fields.ident("Generation admitted.", unique=True)
    epoch: int = fields.count("Epoch of the generation.")
    task_id: str = fields.ident("Task that the generation became.")
    context_id: str = fields.ident("Conditioning context of the generation.")
    env_policy_version: int = fields.count("Version of pi_env that sampled it.")
    p_hat: float = fields.share("Share of successes at the configured level.")
    skill: float = fields.share("The same above chance; null in older runs.", nullable=True)
    r_env: float = fields.share("R_env at the configured level.")
    pay: float = fields.share(
        "What pi_env is paid for it by `rwr.pay`, before a moved target; null in older runs.",
        nullable=True,
    )
    weight_raw: float = fields.number(
        "exp(lambda pay), before target, families and normalisation.", low=0.0
    )
    kept: bool = fields.flag("Whether the filter lets the environment update use it.")


class UpdateSamples(
    Table,
    key=("policy", "epoch", "row_id"),
    rules={
        "advantage is set exactly for the agent, weight exactly for env": (
            pl.col("advantage").is_not_null() == (pl.col("policy") == Policy.AGENT.value)
        )
        & (pl.col("weight").is_not_null() == (pl.col("policy") == Policy.ENV.value)),
        "leash is set exactly for env, and true where weight is 0": (
            pl.col("leash").is_not_null() == (pl.col("policy") == Policy.ENV.value)
        )
        & ((pl.col("weight") > 0) | pl.col("leash")),
    },
    version=2,
):
    """One row a pool row that an update used."""

    row_id: str = fields.ident(
        "Row used: a trace_id of D_train or a generation_id, of D_env where weight is above 0."
    )
    policy: str = fields.label("Policy that was updated.", Policy)
    epoch: int = fields.count("Epoch of the update.", low=1)
    group_id: str = fields.ident("Group of rollouts the row belongs to.", nullable=True)
    source: str = fields.label(
        "Share of the mixture that it was drawn for; rehearsal: a text of the first pi_env, drawn "
        "by lot (`rwr.rehearsal`).",
        MixtureShare,
    )
    policy_version: int = fields.count("Policy version that sampled the row.")
    advantage: float = fields.number(
        "Agent update: group-relative advantage; null for env.", nullable=True
    )
    weight: float = fields.number(
        "Env update: RWR weight, mean 1 over the rows above 0, with the target and the families "
        "of its settings; 0 where only the KL is along the row; null for the agent.",
        low=0.0,
        nullable=True,
    )
    leash: bool = fields.flag(
        "Env update: whether the KL of the update is along the row; null for the agent.",
        nullable=True,
    )


class Influence(Table, key=("epoch", "group_id")):
    """One row a group of an agent update whose influence was measured (`grpo.attribution`)."""

    group_id: str = fields.ident("Group of rollouts that the update trained on.")
    epoch: int = fields.count("Epoch of the update.", low=1)
    task_id: str = fields.ident("Task attempted.")
    source: str = fields.label("Share of the mixture that it was drawn for.", MixtureShare)
    alignment: float = fields.number(
        "Rise of the validation tasks' mean P(answer) by a small step of plain gradient descent on "
        "the group's part of the loss, over the learning rate: the product of both gradients at "
        "the weights that the update started from."
    )
    share: float = fields.number(
        "alignment / sum of all groups' |alignment|, from -1 to 1; 0 where all are 0.", low=-1.0
    )
    loss_tokens: int = fields.count("Tokens of the group that count in the loss.")
    tokens: int = fields.count(
        "Tokens read to measure it: the group's rows twice, and its part of the answers, three "
        "times."
    )
