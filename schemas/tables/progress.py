"""Tables of outcomes (evaluations, checkpoints, the summary of each epoch) and of history.

Those of history, what happened and when, are the only ones that differ between two equal runs.
"""

from __future__ import annotations

import polars as pl

from genenv_core.types import Cause, Policy
from schemas.enums import EvaluationMode, Gate, Split, StageState, UpdateAction
from schemas.tables import fields
from schemas.tables.fields import Table


class Evaluations(
    Table,
    key=("epoch", "split", "mode", "task_id", "sample_index"),
    version=3,
    added={3: ("measured_epoch",)},
    rules={
        "the attempts were made in this epoch or before": (
            pl.col("measured_epoch") <= pl.col("epoch")
        ),
    },
):
    """One row an attempt at a held-out task that has a verdict."""

    task_id: str = fields.ident("Held-out task attempted.")
    epoch: int = fields.count("Epoch whose agent was evaluated; 0 is the bootstrap.")
    measured_epoch: int = fields.count(
        "Epoch in which the attempts were made: an earlier one where the agent had not changed "
        "since. Null in older runs.",
        nullable=True,
    )
    policy_version: int = fields.count("Version of pi_agent that the evaluated weights came from.")
    agent_checkpoint: str = fields.ident("Digest of the evaluated weights.")
    family: str = fields.name("The task's label for statistics.", nullable=True)
    split: str = fields.label("Which held-out tasks it belongs to.", Split)
    mode: str = fields.label("How answers were decoded.", EvaluationMode)
    sample_index: int = fields.count("Index among the attempts at the task, from 0.")
    success: bool = fields.flag("Whether the raw outcome is right.")
    reward: float = fields.share("R_agent of the attempt.")
    answer_probability: float = fields.share(
        "Probability that the agent, sampled, says just the reference answer, from one forward "
        "pass; equal in all samples of a task. Null where domain or engine cannot give it.",
        nullable=True,
    )
    response_tokens: int = fields.count("Tokens that the agent sampled.")
    failure: str = fields.note("What went wrong, in a few words; '' when it succeeded.")


class EvaluationTexts(
    Table,
    key=("epoch", "split", "mode", "task_id", "sample_index"),
    version=2,
    added={2: ("error", "cause")},
):
    """One row a held-out attempt, its text."""

    task_id: str = fields.ident("Held-out task attempted.")
    epoch: int = fields.count("Epoch whose agent was evaluated; 0 is the bootstrap.")
    split: str = fields.label("Which held-out tasks it belongs to.", Split)
    mode: str = fields.label("How answers were decoded.", EvaluationMode)
    sample_index: int = fields.count("Index among the attempts at the task, from 0.")
    messages: str = fields.json_array("Whole transcript, JSON array of chat messages.")
    response_text: str = fields.text("Text of the agent's turns, one below the other.")
    error: str = fields.text(
        "What broke the attempt; '' when nothing did, null in older runs.", nullable=True
    )
    cause: str = fields.label(
        "Whose failure broke it; null when nothing did. Only the agent's is a verdict: the others "
        "have no row in `evaluations`.",
        Cause,
        nullable=True,
    )


class Checkpoints(
    Table,
    key=("policy", "epoch"),
    rules={
        "published exactly when gate is open": pl.col("published")
        == (pl.col("gate") == Gate.OPEN.value),
        "only a published checkpoint is best": pl.col("published") | ~pl.col("is_best"),
    },
):
    """One row a policy and epoch: its candidate weights and their gate."""

    policy: str = fields.label("Which policy.", Policy)
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
    is_best: bool = fields.flag("Whether it was the best by validation success when published.")
    metrics: str = fields.json_object(
        "Metrics of the update, in epoch 0 of the warm start, JSON object of numbers."
    )


class Epochs(
    Table,
    key=("epoch",),
    version=6,
    renamed={3: {"mean_calls": "mean_difficulty"}},
    added={4: ("attempts_lost",), 5: ("skill", "tasks_note"), 6: ("tasks_refilled",)},
    rules={
        "tasks_valid is at most tasks_generated": pl.col("tasks_valid")
        <= pl.col("tasks_generated"),
    },
):
    """One row an epoch: its summary; the view `epochs` adds the seconds."""

    epoch: int = fields.count("Epoch, from 1; 0 is the state after bootstrap.")
    tasks_generated: int = fields.count("Generations parsed, valid or not.")
    tasks_valid: int = fields.count("Generations that became tasks, attempted or not.")
    p_hat: float = fields.share(
        "Share of successes over the new tasks' rollouts; null without any.", nullable=True
    )
    p_hat_written: float = fields.share(
        "Success rate expected over all tasks that pi_env wrote, chosen or not: attempted ones "
        "count with their share, others with their prediction; null without any.",
        nullable=True,
    )
    skill: float = fields.share(
        "p_hat above the chance of a guess, which alpha is the target of: (p_hat - chance) / "
        "(1 - chance) with the mean chance of a rollout, at least 0; equals p_hat where nothing "
        "can be guessed; null without rollouts and in older runs.",
        nullable=True,
    )
    r_env_mean: float = fields.share("Mean R_env of the attempted new tasks.", nullable=True)
    share_in_band: float = fields.share(
        "Share of new tasks with |skill - alpha| <= k_min.", nullable=True
    )
    share_zero_signal: float = fields.share(
        "Share of new groups whose rewards are all equal.", nullable=True
    )
    share_kept: float = fields.share(
        "Share of new tasks that the environment update may use.", nullable=True
    )
    mean_difficulty: float = fields.number(
        "Mean difficulty of the attempted new tasks (desk, trails: tool calls).",
        low=0.0,
        nullable=True,
    )
    mean_response_tokens: float = fields.number(
        "Mean tokens that the agent sampled in a rollout of a new task.", low=0.0, nullable=True
    )
    heldout_success: float = fields.share(
        "Success of the candidate agent on the test tasks, sampled; nothing in the loop reads it.",
        nullable=True,
    )
    heldout_success_greedy: float = fields.share(
        "The same, greedy; null when that is off.", nullable=True
    )
    heldout_answer_probability: float = fields.share(
        "Mean probability of the test tasks' reference answers, without sampling noise; null where "
        "domain or engine cannot give it.",
        nullable=True,
    )
    validation_success: float = fields.share(
        "Success on the validation tasks, sampled; gates and the choice of the best read it.",
        nullable=True,
    )
    kl_env: float = fields.number(
        "KL of pi_env to the initial simulator, nats a sequence, on fresh generations.",
        nullable=True,
    )
    kl_env_se: float = fields.number("Standard error of kl_env.", low=0.0, nullable=True)
    grpo_steps: int = fields.count("Optimizer steps of the agent update.")
    rwr_steps: int = fields.count("Optimizer steps of the environment update.")
    agent_checkpoint: str = fields.ident("Digest of pi_agent's current weights after the epoch.")
    env_checkpoint: str = fields.ident("Digest of pi_env's current weights after the epoch.")
    agent_action: str = fields.label("What the agent update did.", UpdateAction)
    agent_note: str = fields.note("Why, for people; '' when there is nothing to say.")
    env_action: str = fields.label("What the environment update did.", UpdateAction)
    env_note: str = fields.note("Why, for people; '' when there is nothing to say.")
    tasks_note: str = fields.text(
        "What is wrong with the epoch's tasks, such as all of one family, for people; '' when "
        "nothing is, null in older runs.",
        nullable=True,
    )
    attempts_lost: int = fields.count(
        "Rollouts without a verdict, because an environment or an engine broke them; null in older "
        "runs.",
        nullable=True,
    )
    tasks_refilled: int = fields.count(
        "Tasks of the reserve that were attempted for want of groups with a signal; null where the "
        "epoch had no reserve (refill.groups), and in older runs.",
        nullable=True,
    )


class StageRuns(
    Table,
    key=("run_id", "epoch", "stage", "attempt"),
    version=4,
    added={
        2: ("computed_by", "computed_at", "computed_seconds"),
        3: ("tokens", "peak_memory"),
        4: ("computed_root",),
    },
):
    """One row an attempt at a stage."""

    run_id: str = fields.ident("Run that made the attempt.")
    epoch: int = fields.count("Epoch of the stage; 0 for bootstrap.")
    stage: str = fields.name("Name of the stage.")
    attempt: int = fields.count("Try of the stage in this run, from 1.", low=1)
    stage_key: str = fields.ident("Content address of the stage's inputs.")
    state: str = fields.label("How the attempt ended.", StageState)
    host: str = fields.name("Machine that made the attempt.")
    pid: int = fields.count("Process that made the attempt.")
    started_at: fields.UtcTime = fields.moment("When the attempt began.")
    seconds: float = fields.number(
        "Wall time of the attempt; null while it runs or when it was killed.",
        low=0.0,
        nullable=True,
    )
    compute_seconds: float = fields.number(
        "Part of `seconds` spent in the stage's own computation.", low=0.0, nullable=True
    )
    rows: int = fields.count("Rows written; null when nothing was.", nullable=True)
    bytes: int = fields.count("Bytes written; null when nothing was.", nullable=True)
    error: str = fields.text("What failed; '' when nothing did.")
    computed_by: str = fields.name(
        "Run that computed what was reused; null for other states, and where nobody noted it.",
        nullable=True,
    )
    computed_at: fields.UtcTime = fields.moment(
        "When that computation began; null as `computed_by`.", nullable=True
    )
    computed_seconds: float = fields.number(
        "Wall time of the attempt that computed it; null as `computed_by`, and when it was killed "
        "before it had noted it.",
        low=0.0,
        nullable=True,
    )
    computed_root: str = fields.text(
        "Root that it was taken from, one of `roots.read`; null as `computed_by`, and where it was "
        "computed in this root.",
        nullable=True,
    )
    tokens: int = fields.count(
        "Tokens of a computed stage, as in `cost`; null for other states, for stages without a "
        "model, and in histories of older versions of genenv.",
        nullable=True,
    )
    peak_memory: int = fields.count(
        "Bytes that the process of a computed stage and those it had started held at most while it "
        "was at work, by samples of their resident memory; of stages side by side in one process, "
        "all of them. Null as `tokens`.",
        nullable=True,
    )


class Runs(Table, key=("run_id",), version=4, added={4: ("fixed_tasks",)}):
    """One row a run: its configuration, and what people say of it."""

    run_id: str = fields.ident("Name of the run.")
    arm: str = fields.name("Method of the run.")
    domain: str = fields.name("Domain that the tasks come from.")
    seed: int = fields.count("Seed of everything random.")
    epochs_planned: int = fields.count("Epochs that the configuration asks for.")
    started_at: fields.UtcTime = fields.moment("When the run was first started.")
    config: str = fields.json_object("The resolved configuration, JSON.")
    tags: fields.Words = fields.members(
        "Its tags, sorted; list_contains(tags, 'x') asks for one.", few=True
    )
    note: str = fields.note("What `genenv tag --note` says of it; '' when nothing does.")
    pinned: bool = fields.flag("Whether it is pinned: gc keeps the weights of all its epochs.")
    branch_of: str = fields.ident(
        "Run that it branches off from, which may be gone; null for a run of its own.",
        nullable=True,
    )
    branch_epoch: int = fields.count(
        "Last epoch that it takes over from that run; 0 is the start.", nullable=True
    )
    fixed_tasks: str = fields.json_object(
        "JSON object of the domains whose tasks are a fixed set, of which pi_env only chooses: how "
        "many may be trained on. Null where it writes tasks, and of older runs.",
        nullable=True,
    )
