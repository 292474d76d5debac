"""Supervised learning of tiny models: a plain torch loop over rows of token ids.

Plain because a trainer's machinery would cost more than the learning. Batches hold rows of about
equal length; the loss is on the answers' tokens only; AdamW under a cosine. Right padding needs no
mask in a causal model: no answer token ever looks at the padding behind it.

The last weights are kept, not a running average. What was seen in twelve epochs of GRPO: held-out
success +.01 to +.02 from averaged weights (2 layers, 16 rows a step), +.02 and +.05 from last
weights at 16 rows (2 and 3 layers), +.04 to +.06 from last weights at 64 rows and 3 layers (three
seeds). The three differ in more than the averaging, so which of them matters is not settled.
"""

# torch and transformers have partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional
from transformers import LlamaForCausalLM

from genenv_core.errors import NumericalError

_POOL_BATCHES = 16  # batches sorted by length together: little padding, still random order
_WARM_UP = 0.05
_BETAS = (0.9, 0.98)
_MAX_GRAD_NORM = 1.0
_PROBE_EVERY = 25
_PROBE_ROWS = 64  # rows in one forward pass of a probe

Row = tuple[list[int], list[int]]
"""Token ids of a prompt and of its answer, the end token included."""


@dataclass(frozen=True, slots=True)
class FitPlan:
    """How to train: `steps` at most, fewer when `target` is reached.

    `target` is a share of the probe's rows that greedy decoding answers exactly; None: no probe.
    `bucketed` batches hold rows of about the same length, which saves padding; where the length
    itself is learned (how many calls pi_env writes) they would pull its shares to and fro.
    """

    steps: int
    batch_rows: int
    learning_rate: float
    seed: int
    target: float | None = None
    bucketed: bool = True


@dataclass(frozen=True, slots=True)
class Fitted:
    """What training did: the model, each step's loss, tokens seen, the last probe."""

    model: LlamaForCausalLM
    losses: list[float]
    tokens: int
    accuracy: float | None


def fit(
    model: LlamaForCausalLM, rows: Sequence[Row], plan: FitPlan, probe: Sequence[Row] = ()
) -> Fitted:
    """Return the trained model; the one passed in is used up.

    Raises NumericalError when the loss is no finite number.
    """
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=plan.learning_rate, betas=_BETAS, weight_decay=0.0, fused=True
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, plan.steps))
    batch_tokens = plan.batch_rows * sum(len(answer) for _, answer in rows) / len(rows)
    losses: list[float] = []
    tokens = 0
    accuracy: float | None = None
    for batch in _batches(rows, plan):
        ids, labels = _collate(batch)
        tokens += ids.numel()
        loss = _loss(model, ids, labels, batch_tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), _MAX_GRAD_NORM)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            raise NumericalError(
                f"warm start: the loss is {losses[-1]} at step {len(losses)}; lower "
                f"bootstrap.learning_rate (now {plan.learning_rate:g})"
            )
        if plan.target is not None and len(losses) % _PROBE_EVERY == 0:
            accuracy = greedy_accuracy(model, probe)
            if accuracy >= plan.target:
                break
    return Fitted(model.eval(), losses, tokens, accuracy)


@torch.no_grad()
def greedy_accuracy(model: LlamaForCausalLM, rows: Sequence[Row]) -> float:
    """Return the share of rows that greedy decoding would answer exactly, without decoding.

    Greedy decoding writes the answer if and only if each of its tokens is the most likely one
    after the prompt and the answer's tokens before it: one forward pass tells.
    """
    order = sorted(rows, key=lambda row: len(row[0]) + len(row[1]))
    exact = 0
    for start in range(0, len(order), _PROBE_ROWS):
        ids, labels = _collate(order[start : start + _PROBE_ROWS])
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
        targets = labels[:, 1:]
        chosen = targets != -100
        wrong = torch.zeros_like(chosen)
        wrong[chosen] = model.lm_head(hidden[chosen]).argmax(-1) != targets[chosen]
        exact += int((~wrong.any(dim=1)).sum())
    return exact / len(rows)


def _loss(
    model: LlamaForCausalLM, ids: torch.Tensor, labels: torch.Tensor, tokens: float
) -> torch.Tensor:
    """Return the NLL of the answers over `tokens`; ids and labels are (B, T), others -100.

    `tokens` is what a batch holds on average. A mean over the batch's own tokens would give a token
    of a short answer more weight than one of a long answer, because lengths share a batch: chains
    of one, two, three calls would then be learned one after the other, each all at once.
    """
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    targets = labels[:, 1:]
    chosen = targets != -100
    # Logits of the answer positions only: the vocabulary's projection is a third of the work.
    logits = model.lm_head(hidden[chosen])
    return functional.cross_entropy(logits, targets[chosen], reduction="sum") / tokens


def _collate(batch: Sequence[Row]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and labels, (B, T) each, right-padded with 0 and -100."""
    width = max(len(prompt) + len(answer) for prompt, answer in batch)
    ids = torch.zeros((len(batch), width), dtype=torch.long)
    labels = torch.full((len(batch), width), -100, dtype=torch.long)
    for index, (prompt, answer) in enumerate(batch):
        start, end = len(prompt), len(prompt) + len(answer)
        ids[index, :end] = torch.tensor(prompt + answer)
        labels[index, start:end] = torch.tensor(answer)
    return ids, labels


def _batches(rows: Sequence[Row], plan: FitPlan) -> Iterator[list[Row]]:
    """Yield the plan's batches in random order."""
    rng = random.Random(plan.seed)
    pool_rows = _POOL_BATCHES * plan.batch_rows
    order: list[int] = []
    made = 0
    while made < plan.steps:
        while len(order) < pool_rows:
            order.extend(rng.sample(range(len(rows)), len(rows)))
        pool, order = order[:pool_rows], order[pool_rows:]
        if plan.bucketed:
            pool.sort(key=lambda index: len(rows[index][0]) + len(rows[index][1]))
        starts = list(range(0, pool_rows, plan.batch_rows))
        rng.shuffle(starts)
        for start in starts[: plan.steps - made]:
            yield [rows[index] for index in pool[start : start + plan.batch_rows]]
        made += len(starts)


def _rate(step: int, steps: int) -> float:
    """Return the share of the peak learning rate: linear warm-up, then a cosine towards 0."""
    warm = max(1, round(_WARM_UP * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
