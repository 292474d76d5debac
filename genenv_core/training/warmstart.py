"""Warm start of the tiny models: supervised learning on seed data, from nothing to a checkpoint.

pi_agent stops when it answers `agent_target` of fresh seed examples exactly. The number of steps
to get there differs by seed (desk: about 700); what the game needs is an agent of a known strength
that leaves something to learn.
"""

# torch and transformers have partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from pydantic import BaseModel, ConfigDict, Field
from transformers import PreTrainedTokenizerFast

from genenv_core.config.models import BootstrapConfig
from genenv_core.domains.registry import get_domain
from genenv_core.domains.seed import SeedData, SeedExample
from genenv_core.errors import ConfigError
from genenv_core.ids import seed_from
from genenv_core.training.sft import FitPlan, Row, fit
from genenv_core.training.tiny import build_model, build_tokenizer, save_checkpoint
from genenv_core.types import JsonObject, Policy

_LOG = logging.getLogger(__name__)

_EXAMPLES = 24_576  # distinct examples; more steps than they fill repeat them in another order
_TOKENIZER_EXAMPLES = 2_000
_PROBE_EXAMPLES = 384
_SKEWED_SHARE = 1 / 3  # of pi_env's steps: the last ones, on easy tasks


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
    """What a warm start did.

    `metrics`: loss (mean of the last tenth of the steps), parameters, tokens (trained on, padding
    included), and for pi_agent accuracy (greedy, on fresh seed examples, once 50 steps are done).
    `cpu_s` is this process's and differs between equal runs.
    """

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
        seed = seed_from("warm_start", request.policy, request.seed)
        agent = request.policy == "agent"
        plan = FitPlan(
            steps=settings.agent_steps if agent else settings.env_steps,
            batch_rows=settings.batch_rows,
            learning_rate=settings.learning_rate,
            seed=seed,
            target=request.settings.agent_target if agent else None,
            bucketed=agent,
        )
        count = min(_EXAMPLES, plan.steps * plan.batch_rows)
        model = build_model(settings.agent if agent else settings.env, tokenizer, seed)
        if agent:
            examples = domain.agent_examples(seed, count)
            probe = domain.agent_examples(seed_from("probe", seed), _PROBE_EXAMPLES)
            fitted = fit(model, encode(tokenizer, examples), plan, encode(tokenizer, probe))
        else:
            # Two phases: what is skewed from the start never learns to write difficult tasks, and
            # the game could not find its way to them.
            late = round(plan.steps * _SKEWED_SHARE)
            broad = domain.env_examples(seed, count, 0.0)
            first = fit(model, encode(tokenizer, broad), replace(plan, steps=plan.steps - late))
            skewed = domain.env_examples(
                seed_from("skewed", seed), late * plan.batch_rows, settings.easy_skew
            )
            second = replace(plan, steps=late, seed=seed_from("skewed", plan.seed))
            fitted = fit(first.model.train(), encode(tokenizer, skewed), second)
            fitted = replace(
                fitted, losses=first.losses + fitted.losses, tokens=first.tokens + fitted.tokens
            )
    finally:
        torch.set_num_threads(threads)
    save_checkpoint(fitted.model, tokenizer, request.output)
    tail = fitted.losses[-max(1, len(fitted.losses) // 10) :]
    metrics = {
        "loss": sum(tail) / len(tail),
        "parameters": float(sum(weights.numel() for weights in fitted.model.parameters())),
        "tokens": float(fitted.tokens),
    }
    if fitted.accuracy is not None:
        metrics["accuracy"] = fitted.accuracy
    result = WarmStartResult(
        policy=request.policy,
        checkpoint=request.output,
        steps=len(fitted.losses),
        metrics=metrics,
        cpu_s=time.process_time() - started,
    )
    _LOG.info(
        "warm start done policy=%s steps=%d loss=%.4f cpu_s=%.1f",
        result.policy,
        result.steps,
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
    if not examples:
        return []
    prompts = [
        str(
            tokenizer.apply_chat_template(
                cast(list[dict[str, str]], messages), add_generation_prompt=True, tokenize=False
            )
        )
        for messages, _ in examples
    ]
    answers = [f"{answer}{tokenizer.eos_token}" for _, answer in examples]
    left: list[list[int]] = tokenizer(prompts, add_special_tokens=False)["input_ids"]
    right: list[list[int]] = tokenizer(answers, add_special_tokens=False)["input_ids"]
    return list(zip(left, right, strict=True))
