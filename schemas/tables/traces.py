"""Tables of the agent's attempts: scalars apart from payload, because they are read apart."""

from __future__ import annotations

import polars as pl

from genenv_core.types import Cause, FinishReason
from schemas.tables import fields
from schemas.tables.fields import Table


class Traces(Table, key=("trace_id",), version=2, added={2: ("cause",)}):
    """One row a rollout of pi_agent, its numbers only."""

    trace_id: str = fields.ident("Id of the trace; sorts by epoch and index.", unique=True)
    epoch: int = fields.count("Epoch of the rollout.")
    task_id: str = fields.ident("Task attempted.")
    group_id: str = fields.ident("Group: the n rollouts of one task under one policy version.")
    sample_index: int = fields.count("Index of the rollout in its group, from 0.")
    policy_version: int = fields.count("Version of pi_agent that sampled it; 0 is the bootstrap.")
    turns: int = fields.count("Completions that the agent gave.")
    prompt_tokens: int = fields.count(
        "Tokens of the first prompt, and of each prompt with which the conversation began anew."
    )
    response_tokens: int = fields.count("Tokens that the agent sampled, all turns together.")
    tool_calls: int = fields.count("Tool calls that the agent made.")
    finish_reason: str = fields.label("Why the last completion ended.", FinishReason)
    error: str = fields.note("What broke the rollout; '' when nothing did.")
    cause: str = fields.label(
        "Whose failure broke it; null when nothing did. Only the agent's is a verdict: the others "
        "have no row in `scores`, and count nowhere.",
        Cause,
        nullable=True,
    )


_EQUALLY_LONG = {
    "token_ids, logprobs and loss_mask are equally long": (
        pl.col("token_ids").list.len() == pl.col("logprobs").list.len()
    )
    & (pl.col("token_ids").list.len() == pl.col("loss_mask").list.len()),
}


class TraceTokens(Table, key=("trace_id",), rules=_EQUALLY_LONG):
    """One row a rollout of pi_agent, its messages, and the tokens of its first sequence."""

    trace_id: str = fields.ident("Id of the trace; sorts by epoch and index.", unique=True)
    prompt_ids: fields.TokenIds = fields.token_ids("Token ids of the first prompt.")
    token_ids: fields.TokenIds = fields.token_ids(
        "Token ids after the first prompt: those of all turns, or of the turns before the "
        "conversation began anew. `trace_sequences` has the later ones."
    )
    logprobs: fields.Logprobs = fields.logprobs(
        "Natural-log probability of each token when sampled; 0 for observation tokens."
    )
    loss_mask: fields.Mask = fields.members(
        "1 for tokens that the agent sampled, 0 for observation tokens.", low=0, high=1, few=True
    )
    messages: str = fields.json_array("Whole transcript, JSON array of chat messages.")
    response_text: str = fields.text("Text of the agent's completions, all turns.")


_BEFORE = pl.col("turn").shift().over("trace_id", order_by="sequence")

_A_FOREST = {
    "a parent comes before its sequence": pl.col("parent") < pl.col("sequence"),
    "a sequence without a parent has branch_turn 0": pl.col("parent").is_not_null()
    | (pl.col("branch_turn") == 0),
    # Each sequence between the two has a turn.
    "a sequence begins after it left its parent and after all sequences since": (
        pl.col("branch_turn") + pl.col("sequence") - 1 - pl.col("parent") <= pl.col("turn")
    ),
    "a sequence begins after the one before it": pl.col("turn") > _BEFORE,
}


class TraceSequences(
    Table,
    key=("trace_id", "sequence"),
    rules=_EQUALLY_LONG | _A_FOREST,
    version=2,
    added={2: ("parent", "branch_turn")},
    # Until then each sequence was made from the whole of the one before it.
    assumed={
        "parent": "CASE WHEN branch_turn IS NULL THEN sequence - 1 ELSE parent END",
        "branch_turn": "COALESCE(branch_turn, turn)",
    },
):
    """One row a further sequence of a rollout: its conversation began anew, with a new prompt."""

    trace_id: str = fields.ident("Id of the trace; sorts by epoch and index.")
    sequence: int = fields.count(
        "Number of the sequence in the rollout, a parent before its children; 0 is in "
        "`trace_tokens`.",
        low=1,
    )
    turn: int = fields.count(
        "First turn of the rollout in this sequence. Turns count from 0, those of one sequence "
        "after those of the one before it.",
        low=1,
    )
    message: int = fields.count(
        "Place of its first message in the `messages` of the rollout, from 0; they end where the "
        "next sequence begins.",
        low=1,
    )
    parent: int = fields.count(
        "Sequence whose messages its prompt was made from, 0 for that in `trace_tokens`; null for "
        "a prompt without such a sequence.",
        nullable=True,
    )
    branch_turn: int = fields.count(
        "Turn of the rollout at which it left its parent: its prompt was made after the parent's "
        "turns with a lower number. That is the turn after the parent's last one where it was made "
        "after all of them, so `turn` where the parent is the sequence before; 0 without a parent."
    )
    prompt_ids: fields.TokenIds = fields.token_ids("Token ids of its prompt.")
    token_ids: fields.TokenIds = fields.token_ids("Token ids after its prompt, all its turns.")
    logprobs: fields.Logprobs = fields.logprobs(
        "Natural-log probability of each token when sampled; 0 for observation tokens."
    )
    loss_mask: fields.Mask = fields.members(
        "1 for tokens that the agent sampled, 0 for observation tokens.", low=0, high=1, few=True
    )


class TrainerLogprobs(Table, key=("trace_id",)):
    """One row a rollout that the trainer scored again before any update learned from it."""

    trace_id: str = fields.ident("Id of the trace; sorts by epoch and index.", unique=True)
    epoch: int = fields.count("Epoch of the rollout.")
    logprobs: fields.Logprobs = fields.logprobs(
        "Natural-log probability of each token of `trace_tokens`, so of the first sequence, by the "
        "trainer's arithmetic, at the sampling temperature; 0 for observation tokens."
    )
