"""Tables of judgement: rewards per trace, success rates per task, and what updates may use."""

from __future__ import annotations

import polars as pl

from genenv_core.types import Policy, TaskSource
from schemas.enums import SelectionReason
from schemas.tables import fields
from schemas.tables.fields import Table


class Scores(Table, key=("trace_id",)):
    """One row a trace with a verdict: how it was judged."""

    trace_id: str = fields.ident("Trace that was judged.", unique=True)
    epoch: int = fields.count("Epoch of the rollout.")
    task_id: str = fields.ident("Task attempted.")
    group_id: str = fields.ident("Group of the rollout.")
    reward: float = fields.share("R_agent of the rollout, 0 to 1.")
    success: bool = fields.flag("Whether the raw outcome is right, whatever the reward.")
    failure: str = fields.note("What went wrong, in a few words; '' when it succeeded.")


class Observations(
    Table,
    key=("trace_id", "turn"),
    rules={
        "fidelity is the content's where schema and state are right, else 0": pl.col("fidelity")
        == pl.when(pl.col("fits_schema") & pl.col("same_state"))
        .then(pl.col("content_similarity").fill_null(0.0))
        .otherwise(0.0),
    },
):
    """One row an answer of pi_env in a tool's place, against the truth."""

    trace_id: str = fields.ident("Trace in which pi_env was asked.")
    epoch: int = fields.count("Epoch of the rollout.")
    task_id: str = fields.ident("Task attempted.")
    turn: int = fields.count("Turn of the agent that was answered, from 0.")
    fits_schema: bool = fields.flag("Whether the answer fits the domain's schema of one.")
    same_state: bool = fields.flag(
        "Whether the domain's own code answers in the same kind: an observation, an error or the "
        "end; and by the same tool, where both name one."
    )
    content_similarity: float = fields.share(
        "Token F1 of the two texts; null where one of the two gave no observation.", nullable=True
    )
    fidelity: float = fields.share("content_similarity where schema and state are right, else 0.")
    said: str = fields.text("What pi_env said, or the error that the agent saw.")
    true_content: str = fields.text(
        "What the domain's own code says there; null where it says nothing more.", nullable=True
    )


class TaskScores(
    Table,
    key=("group_id",),
    version=3,
    added={2: ("lost",), 3: ("skill", "skill_group", "skill_batch")},
    rules={
        "successes is at most n": pl.col("successes") <= pl.col("n"),
        "p_hat is successes / n": (pl.col("p_hat") - pl.col("successes") / pl.col("n")).abs()
        < 1e-9,
    },
):
    """One row a group, that is a task attempted in an epoch: p_hat and R_env.

    A group with fewer verdicts than `curriculum.least_n` has no row.
    """

    group_id: str = fields.ident("Group: the n rollouts of one task in one epoch.", unique=True)
    epoch: int = fields.count("Epoch of the rollouts.")
    task_id: str = fields.ident("Task attempted.")
    context_id: str = fields.ident(
        "Conditioning context of the task; null when pi_env did not write it.", nullable=True
    )
    source: str = fields.label("Where the task comes from.", TaskSource)
    n: int = fields.count("Rollouts of the group that have a verdict.", low=1)
    successes: int = fields.count("Rollouts that succeeded (k).")
    p_hat: float = fields.share("Share of successes of the task, k / n.")
    p_hat_group: float = fields.share(
        "Share of successes over all tasks of the context; null without one.", nullable=True
    )
    p_hat_batch: float = fields.share(
        "Share of successes over the epoch's new tasks; null for other tasks.", nullable=True
    )
    skill: float = fields.share(
        "p_hat above the chance of a guess, max(0, (p_hat - chance) / (1 - chance)), which R_env "
        "and the filter judge; null in older runs.",
        nullable=True,
    )
    skill_group: float = fields.share(
        "p_hat_group above the mean chance of its rollouts; null without one and in older runs.",
        nullable=True,
    )
    skill_batch: float = fields.share(
        "p_hat_batch above the mean chance of its rollouts; null without one and in older runs.",
        nullable=True,
    )
    r_env_task: float = fields.share(
        "R_env of the task's skill; null for base tasks.", nullable=True
    )
    r_env_group: float = fields.share(
        "R_env of the context's skill; null for base tasks.", nullable=True
    )
    r_env_batch: float = fields.share(
        "R_env of the epoch's skill; null for base tasks.", nullable=True
    )
    r_env: float = fields.share(
        "R_env at the configured level; null for base tasks.", nullable=True
    )
    reward_mean: float = fields.share("Mean R_agent of the group.")
    reward_std: float = fields.number("Standard deviation of R_agent in the group.", low=0.0)
    zero_signal: bool = fields.flag("Whether all rewards are equal, so pi_agent learns nothing.")
    lost: int = fields.count(
        "Rollouts of the group that an environment or an engine broke; null in older runs.",
        nullable=True,
    )


class Selections(
    Table,
    key=("update", "epoch", "task_id"),
    rules={
        "kept exactly when reason is kept": pl.col("kept")
        == (pl.col("reason") == SelectionReason.KEPT.value),
    },
):
    """One row a task and update: whether the update may use it."""

    task_id: str = fields.ident("Task decided about.")
    epoch: int = fields.count("Epoch of the update.")
    update: str = fields.label("Policy whose update the decision is for.", Policy)
    group_id: str = fields.ident(
        "Group of rollouts judged; null when there are none.", nullable=True
    )
    kept: bool = fields.flag("Whether the update may use it.")
    reason: str = fields.label("Why, in one word.", SelectionReason)
    p_hat: float = fields.share(
        "Share of successes at the configured level; null without rollouts.", nullable=True
    )
    distance: float = fields.share(
        "How far that p_hat, above chance, is from alpha: |skill - alpha|.", nullable=True
    )
