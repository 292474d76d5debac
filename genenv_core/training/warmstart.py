"""Warm start of the tiny models: supervised learning on seed data, from nothing to a checkpoint.

A plain torch loop, because a trainer's machinery would cost more than the learning: batches of
rows of about equal length, loss on the answer's tokens only, AdamW under a cosine. Right padding
needs no mask in a causal model: no answer token ever looks at the padding behind it.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch.nn import functional
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from genenv_core.config.schema import BootstrapConfig
from genenv_core.domains.registry import get_domain
from genenv_core.domains.seed import SeedData, SeedExample
from genenv_core.errors import ConfigError, NumericalError
from genenv_core.ids import seed_from
from genenv_core.training.tiny import build_model, build_tokenizer, save_checkpoint
from genenv_core.types import JsonObject, Policy

_LOG = logging.getLogger(__name__)

_EXAMPLES = 24_576  # distinct examples; more steps than they fill repeat them in another order
_POOL_BATCHES = 16  # batches sorted by length together: little padding, still random order
_TOKENIZER_EXAMPLES = 2_000
_WARM_UP = 0.05
_BETAS = (0.9, 0.98)
_MAX_GRAD_NORM = 1.0

Row = tuple[list[int], list[int]]
"""Token ids of a prompt and of its answer, the end token included."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class WarmStartRequest(_Record):
    """One warm start: which policy of which domain, and where its checkpoint goes."""

    policy: Policy
    domain_name: str
    domain_options: JsonObject = Field(default_factory=dict[str, Any])
    output: Path
    settings: BootstrapConfig
    seed: int
    threads: int = Field(ge=1)


class WarmStartResult(_Record):
    """What a warm start did. `metrics`: loss (mean of the last tenth of the steps), parameters,
    tokens (trained on, padding included). `cpu_s` is this process's and differs between runs."""

    policy: Policy
    checkpoint: Path
    steps: int
    metrics: dict[str, float]
    cpu_s: float


def warm_start(request: WarmStartRequest) -> WarmStartResult:
    """Return what was trained, saved in `request.output` as a complete Hugging Face checkpoint.

    Bit for bit the same for equal requests with one thread. Raises ConfigError when the domain
    has no seed data and NumericalError when the loss is no finite number.
    """
    started = time.process_time()
    settings = request.settings
    domain = get_domain(request.domain_name, request.domain_options)
    if not isinstance(domain, SeedData):
        raise ConfigError(
            f"domain {request.domain_name!r} has no seed data, so models.{request.policy} cannot "
            "be 'bootstrap': give a checkpoint directory or a hub id"
        )
    threads = torch.get_num_threads()
    torch.set_num_threads(request.threads)
    try:
        tokenizer = seed_tokenizer(domain, request.seed, settings.easy_skew)
        steps = settings.agent_steps if request.policy == "agent" else settings.env_steps
        count = min(_EXAMPLES, steps * settings.batch_rows)
        seed = seed_from("warm_start", request.policy, request.seed)
        if request.policy == "agent":
            examples = domain.agent_examples(seed, count)
        else:
            examples = domain.env_examples(seed, count, settings.easy_skew)
        shape = settings.agent if request.policy == "agent" else settings.env
        model = build_model(shape, tokenizer, seed)
        losses, tokens = _fit(model, encode(tokenizer, examples), settings, steps, seed)
    finally:
        torch.set_num_threads(threads)
    save_checkpoint(model, tokenizer, request.output)
    tail = losses[-max(1, steps // 10) :]
    result = WarmStartResult(
        policy=request.policy,
        checkpoint=request.output,
        steps=steps,
        metrics={
            "loss": sum(tail) / len(tail),
            "parameters": float(sum(weights.numel() for weights in model.parameters())),
            "tokens": float(tokens),
        },
        cpu_s=time.process_time() - started,
    )
    _LOG.info(
        "warm start done policy=%s steps=%d loss=%.4f cpu_s=%.1f",
        result.policy,
        steps,
        result.metrics["loss"],
        result.cpu_s,
    )
    return result


def seed_tokenizer(domain: SeedData, seed: int, easy_skew: float) -> PreTrainedTokenizerFast:
    """Return the tokenizer that both policies of a run share, made from both kinds of examples."""
    seed = seed_from("seed_tokenizer", seed)
    examples = [
        *domain.agent_examples(seed, _TOKENIZER_EXAMPLES),
        *domain.env_examples(seed, _TOKENIZER_EXAMPLES, easy_skew),
    ]
    texts = (
        text
        for messages, answer in examples
        for text in (*(message["content"] for message in messages), answer)
    )
    return build_tokenizer(texts)


def encode(tokenizer: PreTrainedTokenizerFast, examples: Sequence[SeedExample]) -> list[Row]:
    """Return each example as token ids: the rendered prompt, and the answer with its end token.

    The two are encoded apart, because sampling also starts right after the prompt's last token.
    """
    prompts = [
        str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
        for messages, _ in examples
    ]
    answers = [f"{answer}{tokenizer.eos_token}" for _, answer in examples]
    left: list[list[int]] = tokenizer(prompts, add_special_tokens=False)["input_ids"]
    right: list[list[int]] = tokenizer(answers, add_special_tokens=False)["input_ids"]
    return list(zip(left, right, strict=True))


def _fit(
    model: LlamaForCausalLM, rows: Sequence[Row], settings: BootstrapConfig, steps: int, seed: int
) -> tuple[list[float], int]:
    """Train in place; return the loss of each step and the number of tokens seen."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, betas=_BETAS, weight_decay=0.0, fused=True
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    losses: list[float] = []
    tokens = 0
    for batch in _batches(rows, settings.batch_rows, steps, random.Random(seed)):
        ids, labels = _collate(batch)
        tokens += ids.numel()
        loss = _loss(model, ids, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), _MAX_GRAD_NORM)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            raise NumericalError(
                f"warm start: the loss is {losses[-1]} at step {len(losses)}; lower "
                f"bootstrap.learning_rate (now {settings.learning_rate:g})"
            )
    return losses, tokens


def _loss(model: LlamaForCausalLM, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean NLL of the answer tokens; ids and labels are (B, T), labels -100 elsewhere."""
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    targets = labels[:, 1:]
    chosen = targets != -100
    # Logits of the answer positions only: the vocabulary's projection is a third of the work.
    return functional.cross_entropy(model.lm_head(hidden[chosen]), targets[chosen])


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


def _batches(
    rows: Sequence[Row], batch_rows: int, steps: int, rng: random.Random
) -> Iterator[list[Row]]:
    """Yield `steps` batches in random order, the rows of each of about the same length."""
    pool_rows = _POOL_BATCHES * batch_rows
    order: list[int] = []
    made = 0
    while made < steps:
        while len(order) < pool_rows:
            order.extend(rng.sample(range(len(rows)), len(rows)))
        pool, order = order[:pool_rows], order[pool_rows:]
        pool.sort(key=lambda index: len(rows[index][0]) + len(rows[index][1]))
        starts = list(range(0, pool_rows, batch_rows))
        rng.shuffle(starts)
        for start in starts[: steps - made]:
            yield [rows[index] for index in pool[start : start + batch_rows]]
        made += len(starts)


def _rate(step: int, steps: int) -> float:
    """Return the share of the peak learning rate: linear warm-up, then a cosine towards 0."""
    warm = max(1, round(_WARM_UP * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
