"""Tables of what the game is played on: tasks and pi_env's generations."""

from __future__ import annotations

import polars as pl

from genenv_core.types import FinishReason, Flaw, Rejection, TaskChoice, TaskSource
from schemas.tables import fields
from schemas.tables.fields import Table, all_set


class Tasks(
    Table,
    key=("task_id",),
    rules={
        "valid exactly when rejection is null": pl.col("valid") == pl.col("rejection").is_null(),
        "a valid task has prompt, program, spec, ground_truth and fingerprint": ~pl.col("valid")
        | all_set("prompt", "program", "spec", "ground_truth", "fingerprint"),
        "a generated task has generation_id, context_id and env_policy_version": (
            pl.col("source") != TaskSource.GENERATED.value
        )
        | all_set("generation_id", "context_id", "env_policy_version"),
        "choice is set exactly for valid generated tasks": pl.col("choice").is_not_null()
        == (pl.col("valid") & (pl.col("source") == TaskSource.GENERATED.value)),
        "reserve_place is set exactly for the choice reserve": (
            pl.col("reserve_place").is_not_null()
            == pl.col("choice").eq_missing(TaskChoice.RESERVE.value)
        ),
    },
    version=6,
    added={
        4: ("chance",),
        5: ("nearest_task_id", "similarity", "nearest_test_id", "test_similarity"),
        6: ("reserve_place",),
    },
):
    """One row a task or rejected generation; base and held-out tasks have epoch 0."""

    task_id: str = fields.ident("Id of the task; sorts by epoch and index.", unique=True)
    epoch: int = fields.count("Epoch that produced the task; 0 before the first epoch.")
    source: str = fields.label("Where the task comes from.", TaskSource)
    generation_id: str = fields.ident(
        "Generation of pi_env that holds the task; null when pi_env did not write it.",
        nullable=True,
    )
    generation_index: int = fields.count(
        "Index of the generation in its epoch, of a teacher's text in its set, or of the task in "
        "its data set, from 0."
    )
    context_id: str = fields.ident(
        "Conditioning context (history and base task) of the generation.", nullable=True
    )
    base_task_id: str = fields.ident(
        "Base task that the generation was conditioned on.", nullable=True
    )
    env_policy_version: int = fields.count(
        "Version of pi_env that wrote it; 0 is the bootstrap checkpoint.", nullable=True
    )
    valid: bool = fields.flag("Whether it became a task that may be attempted.")
    rejection: str = fields.label(
        "Why it did not become a task; null when valid.", Rejection, nullable=True
    )
    rejection_detail: str = fields.note("What exactly was wrong, for people; '' when valid.")
    choice: str = fields.label(
        "Whether the task is attempted, and why; null for those that pi_env did not write.",
        TaskChoice,
        nullable=True,
    )
    reserve_place: int = fields.count(
        "Place among the tasks of the choice reserve, from 0: the stage rollout attempts them in "
        "this order while groups with a signal are wanting; null for others, and in older runs.",
        nullable=True,
    )
    predicted_p: float = fields.share(
        "Success rate predicted before any attempt; null without earlier attempts to learn from.",
        nullable=True,
    )
    predicted_sd: float = fields.number(
        "Standard deviation of that prediction; null without one.", low=0.0, nullable=True
    )
    predicted_drift: float = fields.number(
        "Log-odds in predicted_p for what the predictions of earlier epochs missed on average; "
        "null without one.",
        nullable=True,
    )
    family: str = fields.name("Short label for statistics, from the domain.", nullable=True)
    difficulty: float = fields.number(
        "The domain's own measure of difficulty (desk, trails: number of tool calls).",
        nullable=True,
    )
    chance: float = fields.share(
        "How often a guess is right; 0 where nothing can be guessed, null in older runs.",
        nullable=True,
    )
    fingerprint: str = fields.ident("Equal for tasks that count as duplicates.", nullable=True)
    nearest_task_id: str = fields.ident(
        "Task before it that it resembles most: a base task, one of the epochs that duplicates are "
        "looked for in, or one of its own epoch; null for tasks of the data, and in older runs.",
        nullable=True,
    )
    similarity: float = fields.share(
        "How alike the two are: Dice coefficient of the words and pairs of words of their "
        "programs, or the cosine of the domain's embedding; 1 is equal.",
        nullable=True,
    )
    nearest_test_id: str = fields.ident(
        "Test task that it resembles most; null for tasks of the data, and in older runs.",
        nullable=True,
    )
    test_similarity: float = fields.share("How alike those two are.", nullable=True)
    env_prompt_tokens: int = fields.count(
        "Tokens of the prompt of pi_env, or of a teacher's model; 0 for data tasks."
    )
    generation_tokens: int = fields.count(
        "Tokens that pi_env, or a teacher's model, sampled; 0 for data tasks."
    )
    program: str = fields.text("Compact text of the task, as pi_env writes it.", nullable=True)
    prompt: str = fields.text("The request that the agent reads.", nullable=True)
    ground_truth: str = fields.text("The expected answer.", nullable=True)
    spec: str = fields.json_object("Evaluation spec, JSON, enough to score a trace.", nullable=True)
    generation_text: str = fields.text(
        "Text of pi_env, or of a teacher's model, as sampled; null for data tasks.", nullable=True
    )


class Certificates(
    Table,
    key=("task_id", "flaw"),
    rules={
        "detail is set exactly when the flaw was found": (pl.col("detail") == "")
        == pl.col("passed")
    },
):
    """One row a check of a new task, before any attempt."""

    task_id: str = fields.ident("Task that was checked.")
    epoch: int = fields.count("Epoch that produced the task.")
    flaw: str = fields.label("Flaw that was looked for.", Flaw)
    passed: bool = fields.flag("Whether the flaw was not found.")
    detail: str = fields.note("What was found, for people; '' when passed.")


class Contexts(Table, key=("context_id",)):
    """One row a conditioning context: what pi_env, or a teacher, was asked."""

    context_id: str = fields.ident("Id of the context; sorts by epoch and index.", unique=True)
    epoch: int = fields.count("Epoch of the generations.")
    base_task_id: str = fields.ident("Base task that is shown.")
    messages: str = fields.json_array("What is asked, JSON array of chat messages.")


class Generations(
    Table,
    key=("generation_id",),
    rules={
        "token_ids and logprobs are equally long": pl.col("token_ids").list.len()
        == pl.col("logprobs").list.len(),
    },
    version=2,
):
    """One row a generation of pi_env: the tokens that RWR trains on."""

    generation_id: str = fields.ident("Id of the generation; sorts.", unique=True)
    epoch: int = fields.count("Epoch of the generation.")
    context_id: str = fields.ident("Conditioning context (history and base task).")
    env_policy_version: int = fields.count("Version of pi_env that sampled it.")
    finish_reason: str = fields.label("Why the generation ended.", FinishReason)
    error: str = fields.note("What the engine reported; '' when nothing failed.")
    grammar: str = fields.name(
        "Grammar that it followed, JSON object of kind and text; null: any text.", nullable=True
    )
    prompt_ids: fields.TokenIds = fields.token_ids("Token ids of pi_env's prompt.")
    token_ids: fields.TokenIds = fields.token_ids("Token ids that pi_env sampled.")
    logprobs: fields.Logprobs = fields.logprobs("Natural-log probability of each sampled token.")
