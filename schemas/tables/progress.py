"""Tables of outcomes: evaluations, checkpoints and the summary of each epoch."""

from __future__ import annotations

import polars as pl

from schemas.enums import EvaluationMode, Gate, PolicyName, UpdateAction
from schemas.tables import fields
from schemas.tables.fields import Table, TableConfig, about, key


class Evaluations(Table):
    """One row an attempt at a held-out task. Key: epoch, mode, task_id, sample_index."""

    task_id: str = fields.ident("Held-out task attempted.")
    epoch: int = fields.count("Epoch whose agent was evaluated; 0 is the bootstrap.")
    policy_version: int = fields.count("Version of pi_agent that the evaluated weights came from.")
    agent_checkpoint: str = fields.ident("Digest of the evaluated weights.")
    family: str = fields.name("The task's label for statistics.", nullable=True)
    mode: str = fields.label("How answers were decoded.", EvaluationMode)
    sample_index: int = fields.count("Index among the attempts at the task, from 0.")
    success: bool = fields.flag("Whether the raw outcome is right.")
    reward: float = fields.share("R_agent of the attempt.")
    response_tokens: int = fields.count("Tokens that the agent sampled.")
    failure: str = fields.note("What went wrong, in a few words; '' when it succeeded.")

    class Config(TableConfig):
        """Identity of a row."""

        unique = key("epoch", "mode", "task_id", "sample_index")
        metadata = about()


class Checkpoints(Table):
    """One row a policy and epoch: its candidate weights and their gate. Key: policy, epoch."""

    policy: str = fields.label("Which policy.", PolicyName)
    epoch: int = fields.count("Epoch that made the candidate; 0 is the bootstrap.")
    digest: str = fields.ident("Digest of the candidate's weights.")
    parent_digest: str = fields.ident(
        "Digest of the weights that the update started from; null for the bootstrap.",
        nullable=True,
    )
    published: bool = fields.flag("Whether the candidate became the current checkpoint.")
    gate: str = fields.label("`open`, or the gate that closed.", Gate)
    gate_detail: str = fields.note("Value and limit that closed the gate; '' when open.")
    steps: int = fields.count("Optimizer steps of the update; 0 when it was skipped.")
    is_best: bool = fields.flag("Whether it was the best by held-out success when published.")
    metrics: str = fields.json_object("Metrics of the update, JSON object of numbers.")

    class Config(TableConfig):
        """Identity of a row."""

        unique = key("policy", "epoch")
        metadata = about(
            rules={
                "published exactly when gate is open": pl.col("published")
                == (pl.col("gate") == Gate.OPEN.value),
                "only a published checkpoint is best": pl.col("published") | ~pl.col("is_best"),
            }
        )


class Epochs(Table):
    """One row an epoch: its summary; the view `epochs` adds the seconds. Key: epoch."""

    epoch: int = fields.count("Epoch, from 1; 0 is the state after bootstrap.")
    tasks_generated: int = fields.count("Generations parsed, valid or not.")
    tasks_valid: int = fields.count("Generations that became tasks.")
    p_hat: float = fields.share(
        "Share of successes over the new tasks' rollouts; null without any.", nullable=True
    )
    r_env_mean: float = fields.share("Mean R_env of the new tasks.", nullable=True)
    share_in_band: float = fields.share(
        "Share of new tasks with |p_hat - alpha| <= k_min.", nullable=True
    )
    share_zero_signal: float = fields.share(
        "Share of new groups whose rewards are all equal.", nullable=True
    )
    share_kept: float = fields.share(
        "Share of new tasks that the environment update may use.", nullable=True
    )
    mean_calls: float = fields.number(
        "Mean difficulty of the new tasks (desk: tool calls).", low=0.0, nullable=True
    )
    mean_response_tokens: float = fields.number(
        "Mean tokens that the agent sampled in a rollout of a new task.", low=0.0, nullable=True
    )
    heldout_success: float = fields.share(
        "Held-out success of the candidate agent, sampled.", nullable=True
    )
    heldout_success_greedy: float = fields.share(
        "The same, greedy; null when that is off.", nullable=True
    )
    kl_env: float = fields.number(
        "KL of pi_env to the initial simulator, nats a sequence.", nullable=True
    )
    grpo_steps: int = fields.count("Optimizer steps of the agent update.")
    rwr_steps: int = fields.count("Optimizer steps of the environment update.")
    agent_checkpoint: str = fields.ident("Digest of pi_agent's current weights after the epoch.")
    env_checkpoint: str = fields.ident("Digest of pi_env's current weights after the epoch.")
    agent_action: str = fields.label("What the agent update did.", UpdateAction)
    agent_note: str = fields.note("Why, for people; '' when there is nothing to say.")
    env_action: str = fields.label("What the environment update did.", UpdateAction)
    env_note: str = fields.note("Why, for people; '' when there is nothing to say.")

    class Config(TableConfig):
        """Identity of a row."""

        unique = key("epoch")
        metadata = about(
            rules={
                "tasks_valid is at most tasks_generated": pl.col("tasks_valid")
                <= pl.col("tasks_generated"),
            }
        )
