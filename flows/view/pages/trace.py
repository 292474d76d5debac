"""A trace: messages and tool calls for people, and every token with its probability."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from tokenizers import Tokenizer

from flows.view.pages import Page, about
from flows.view.parting import HeldAttempt, held
from flows.view.reading import Panel, Reader
from genenv_core.benchmarks.measuring.expected import right_answer
from genenv_core.errors import NotFound
from genenv_core.storage.sql.duck import text
from genenv_core.storage.sql.lookup import (
    beginning,
    measured_checkpoint,
    token_texts,
    tokenizer_of,
    with_prompt,
)
from genenv_core.types import Policy

LEVELS = 10
"""Shades of a token's probability."""

APART = 0.01
"""Nats by which sampler and trainer have to differ on a token for the page to mark it."""


@dataclass(frozen=True, slots=True)
class ShownToken:
    """One token: its text, whether the loss counts it, its logprobs by sampler and trainer."""

    text: str
    token_id: int
    sampled: bool
    logprob: float
    trainer: float | None

    @property
    def level(self) -> int:
        """Return the shade: 0 for a token that was very unlikely, 9 for a nearly certain one."""
        return min(LEVELS - 1, int(math.exp(self.logprob) * LEVELS))

    @property
    def said(self) -> str:
        """Return the token's text for people."""
        if not self.sampled:
            return f"id {self.token_id}, not sampled: the loss does not count it"
        known = f"id {self.token_id}, p = {math.exp(self.logprob):.4f}, logprob {self.logprob:.3f}"
        if self.trainer is None:
            return known
        return f"{known}, by the trainer {self.trainer:.3f} ({self.trainer - self.logprob:+.1g})"

    @property
    def apart(self) -> bool:
        """Return whether sampler and trainer differ on it by more than `APART`."""
        return self.trainer is not None and abs(self.trainer - self.logprob) > APART


@dataclass(frozen=True, slots=True)
class ShownSequence:
    """What the agent sampled behind one prompt; `begins` says where, '' for the first sequence.

    The tokens of a further sequence begin with its prompt.
    """

    begins: str
    tokens: list[ShownToken]


@dataclass(frozen=True, slots=True)
class ShownTrace:
    """One attempt as the page shows it."""

    facts: Panel
    tokens: Panel
    trainer: Panel
    further: Panel
    """The rows of `trace_sequences`: one for each sequence after the first."""
    held: HeldAttempt
    shown: list[ShownSequence]
    """All sequences in order; empty where no tokens are stored."""
    updates: Panel
    prompt: str
    """The text that pi_agent read before its first turn; '' behind an endpoint."""
    expected: str
    """The right answer: the task's, or that of a benchmark's item where its download is here."""
    measured: str | None
    """Digest of the weights from which a measurement sampled."""

    @property
    def times(self) -> str:
        """Return in words how often the conversation began anew."""
        count = len(self.further.rows)
        return {1: "once", 2: "twice"}.get(count, f"{count} times")


def page(reader: Reader, request: Request) -> Page:
    """Return a trace, or two beside each other; raises NotFound."""
    run, trace = request.path_params["run"], request.path_params["trace"]
    about(reader, run)
    other = request.query_params.get("with", "")
    traces = [_trace(reader, run, name) for name in (trace, other) if name]
    task = traces[0].facts.rows[0]["task_id"]
    others = reader.panel(
        "others", "Other attempts at this task",
        "SELECT trace_id, success, reward FROM judged_traces "
        f"WHERE run_id = {text(run)} AND task_id = {text(task)} ORDER BY trace_id",
    )  # fmt: skip
    ids = [row["trace_id"] for row in others]
    at = ids.index(trace)
    return Page(
        "trace.html.j2", trace,
        {
            "run": run, "trace": trace, "traces": traces, "others": others, "task_id": task,
            "apart": APART, "before": ids[at - 1] if at else None,
            "after": ids[at + 1] if at + 1 < len(ids) else None,
        },
    )  # fmt: skip


def _trace(reader: Reader, run: str, trace: str) -> ShownTrace:
    own = f"run_id = {text(run)}"
    facts = reader.panel(
        "facts", "The attempt",
        "SELECT r.trace_id, r.task_id, r.epoch, r.sample_index, r.policy_version, r.success, "
        "r.reward, u.advantage, r.failure, r.parts AS judged, r.error, r.finish_reason, r.turns, "
        "r.tool_calls, r.prompt_tokens, r.response_tokens\n"
        "FROM judged_traces AS r\n"
        "LEFT JOIN uses AS u ON u.run_id = r.run_id AND u.row_id = r.trace_id "
        "AND u.policy = 'agent'\n"
        f"WHERE r.{own} AND r.trace_id = {text(trace)}",
    )  # fmt: skip
    if facts.first is None:
        raise NotFound(f"run {run} has no trace {trace!r}: search for its id")
    tokens = reader.panel(
        "tokens", "Its tokens",
        "SELECT prompt_ids, token_ids, logprobs, loss_mask, messages FROM trace_tokens "
        f"WHERE trace_id = {text(trace)}",
    )  # fmt: skip
    trainer = reader.panel(
        "trainer", "The same tokens by the trainer",
        f"SELECT logprobs FROM trainer_logprobs WHERE trace_id = {text(trace)}",
    )  # fmt: skip
    further = reader.panel(
        "further", "Where the conversation began anew",
        "SELECT sequence, turn, parent, branch_turn, prompt_ids, token_ids, logprobs, loss_mask "
        f"FROM trace_sequences WHERE {own} AND trace_id = {text(trace)} ORDER BY sequence",
    )  # fmt: skip
    updates = reader.panel(
        "updates", "Updates that trained on it",
        "SELECT epoch, source, advantage, checkpoint, published FROM lineage "
        f"WHERE {own} AND policy = 'agent' AND row_id = {text(trace)} ORDER BY epoch",
    )  # fmt: skip
    row = tokens.first
    expected = _expected(reader, run, facts.first["task_id"])
    failed = facts.first["success"] is False
    tokenizer = tokenizer_of(reader.store, run, Policy.AGENT) if row else None
    return ShownTrace(
        facts, tokens, trainer, further,
        held(json.loads(row["messages"]) if row else [], expected, failed=failed),
        _sequences(tokenizer, row, trainer.first, further.rows) if row else [], updates,
        "".join(token_texts(tokenizer, row["prompt_ids"])) if row else "",
        expected, measured_checkpoint(reader.store, run),
    )  # fmt: skip


def _expected(reader: Reader, run: str, task: str) -> str:
    row = reader.panel(
        "expected", "The task",
        "SELECT ground_truth, source, spec FROM tasks "
        f"WHERE run_id = {text(run)} AND task_id = {text(task)}",
    ).first  # fmt: skip
    return "" if row is None else right_answer(reader.store, run, row)


def _sequences(
    tokenizer: Tokenizer | None,
    row: dict[str, Any],
    trainer: dict[str, Any] | None,
    further: Sequence[dict[str, Any]],
) -> list[ShownSequence]:
    """Return the first sequence without its prompt, and each further one with its prompt."""
    scored = trainer["logprobs"] if trainer else [None] * len(row["token_ids"])
    first = _tokens(tokenizer, row["token_ids"], row["logprobs"], row["loss_mask"], scored)
    found = [ShownSequence("", first)] if first else []
    for one in further:
        ids, logprobs, mask = with_prompt(one)
        tokens = _tokens(tokenizer, ids, logprobs, mask, [None] * len(ids))
        found.append(ShownSequence(beginning(one), tokens))
    return found


def _tokens(
    tokenizer: Tokenizer | None,
    ids: Sequence[int],
    logprobs: Sequence[float],
    mask: Sequence[int],
    scored: Sequence[float | None],
) -> list[ShownToken]:
    return [
        ShownToken(shown, token, bool(sampled), logprob, again)
        for shown, token, sampled, logprob, again in zip(
            token_texts(tokenizer, ids), ids, mask, logprobs, scored, strict=True
        )
    ]
