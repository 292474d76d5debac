"""The tiny models and their warm start: supervised learning on seed data, from nothing to a
checkpoint of a BPE tokenizer and a small decoder.

pi_agent stops when it answers `agent_target` of fresh seed examples exactly. The number of steps
differs by seed (desk: about 1100); the game needs an agent of a known strength that still has
something to learn.

Departure from common practice: the tokenizer's alphabet is the characters of the seed data, not
256 bytes, which would take the room of merges and double the length of every text. Any other
character becomes the unknown token.

The architecture is Llama because AutoTokenizer of transformers 5 replaces the tokenizer of every
checkpoint of type qwen2 by Qwen's own and ignores its files.
"""

# torch and transformers have partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging as hub_logging

from genenv_core.config.sections.models import ModelSizeConfig
from genenv_core.domains.protocol import SeedData, SeedExample
from genenv_core.domains.registry import get_domain
from genenv_core.errors import ConfigError
from genenv_core.ids import seed_from
from genenv_core.play.template.bootstrap import CHAT_TEMPLATE
from genenv_core.training.warm_start.request import WarmStartRequest, WarmStartResult, note_step
from genenv_core.training.warm_start.sft import FitSettings, Row, fit
from genenv_core.types import Policy

_LOG = logging.getLogger(__name__)

_EXAMPLES = 24_576  # distinct examples; more steps than they fill repeat them in another order
_TOKENIZER_EXAMPLES = 2_000
_PROBE_EXAMPLES = 384
_SKEWED_SHARE = 1 / 3  # of pi_env's steps: the last ones, on easy tasks

PAD, END, UNKNOWN = "<|pad|>", "<|end|>", "<|unk|>"
ROLES = ("system", "user", "assistant", "tool")

VOCABULARY = 256
"""Tokens in all. Enough for the scaffold of desk's tool calls to become single tokens."""

MAX_POSITIONS = 2048

_LOOKED_AT = 16  # examples of each policy, to see whether the models have the positions for them
_LETTERS = 6  # of a token at most, on average; desk and the benchmarks have two to four

INITIALIZER_RANGE = 0.1
"""Standard deviation of initial weights. The usual 0.02 is meant for widths in the thousands: at
width 64 the same number of steps then learns next to no arithmetic (.40 against .98 of one-call
tasks after 600 steps)."""


def warm_start(request: WarmStartRequest) -> WarmStartResult:
    """Train a tiny model, save it in `request.output`, and return the result.

    The output is a complete Hugging Face checkpoint. Equal requests with one thread give equal
    bits. Raises ConfigError when the domain has no seed data, or texts too long for tiny models,
    and NumericalError when the loss is not finite.
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

    def stepped(loss: float) -> None:
        if request.steps is not None:
            note_step(request.steps, loss)

    try:
        shown = [
            *domain.agent_examples(request.seed, _LOOKED_AT),
            *domain.env_examples(request.seed, _LOOKED_AT, settings.easy_skew),
        ]
        # By letters first, because the tokenizer would take minutes on texts far too long.
        _check_room(request, max(map(_letters, shown)) // _LETTERS)
        tokenizer = seed_tokenizer(domain, request.seed, settings.easy_skew)
        _check_room(request, max(len(a) + len(b) for a, b in encode(tokenizer, shown)))
        seed = seed_from("warm_start", request.policy, request.seed)
        agent = request.policy is Policy.AGENT
        how = FitSettings(
            steps=settings.agent_steps if agent else settings.env_steps,
            batch_rows=settings.batch_rows,
            learning_rate=settings.learning_rate,
            seed=seed,
            target=request.settings.agent_target if agent else None,
            bucketed=agent,
        )
        count = min(_EXAMPLES, how.steps * how.batch_rows)
        model = build_model(settings.agent if agent else settings.env, tokenizer, seed)
        if agent:
            examples = domain.agent_examples(seed, count)
            probe = domain.agent_examples(seed_from("probe", seed), _PROBE_EXAMPLES)
            fitted = fit(
                model, encode(tokenizer, examples), how, encode(tokenizer, probe), stepped=stepped
            )
        else:
            # Two phases: a pi_env that is skewed from the start never learns to write difficult
            # tasks, and the game could not find them.
            late = round(how.steps * _SKEWED_SHARE)
            broad = domain.env_examples(seed, count, 0.0)
            broadly = replace(how, steps=how.steps - late)
            first = fit(model, encode(tokenizer, broad), broadly, stepped=stepped)
            skewed = domain.env_examples(
                seed_from("skewed", seed), late * how.batch_rows, settings.easy_skew
            )
            second = replace(how, steps=late, seed=seed_from("skewed", how.seed))
            fitted = fit(first.model.train(), encode(tokenizer, skewed), second, stepped=stepped)
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
        result.policy, result.steps, result.metrics["loss"], result.cpu_s,
    )  # fmt: skip
    return result


def _letters(example: SeedExample) -> int:
    return sum(len(message["content"]) for message in example[0]) + len(example[1])


def _check_room(request: WarmStartRequest, tokens: int) -> None:
    """Raise ConfigError where an example has more tokens than the tiny models have positions."""
    if tokens > MAX_POSITIONS:
        raise ConfigError(
            f"domain {request.domain_name!r} has texts of {tokens} tokens or more, and tiny models "
            f"have {MAX_POSITIONS} positions, so models.{request.policy} cannot be 'bootstrap': "
            "give a checkpoint directory or a hub id, or shorten the prompts by "
            "domain.options.explain=false, if the domain has that"
        )


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


def build_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Return a BPE tokenizer of at most `VOCABULARY` tokens with a chat template.

    Each digit is its own token, so the model reads and writes numbers place by place; text between
    two digits may merge into one token. Equal texts give an equal tokenizer.
    """
    bpe = Tokenizer(models.BPE(unk_token=UNKNOWN))
    bpe.pre_tokenizer = pre_tokenizers.Split(Regex("[0-9]"), "isolated")
    bpe.decoder = decoders.Fuse()
    special = [PAD, END, UNKNOWN, *(f"<|{role}|>" for role in ROLES)]
    # All digits belong to the alphabet, even those in no sample.
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=special,
        initial_alphabet=list("0123456789"),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        additional_special_tokens=[f"<|{role}|>" for role in ROLES],
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_POSITIONS,
        padding_side="right",
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build_model(
    shape: ModelSizeConfig, tokenizer: PreTrainedTokenizerFast, seed: int
) -> LlamaForCausalLM:
    """Return a freshly initialised float32 Llama model of this shape, in training mode."""
    end = tokenizer.convert_tokens_to_ids(END)
    pad = tokenizer.convert_tokens_to_ids(PAD)
    ids: dict[str, Any] = {"eos_token_id": end, "pad_token_id": pad}
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=MAX_POSITIONS,
        initializer_range=INITIALIZER_RANGE,
        tie_word_embeddings=True,
        attention_dropout=0.0,
        bos_token_id=None,
        **ids,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).float()
    model.generation_config = GenerationConfig(do_sample=True, **ids)
    return model.train()


def save_checkpoint(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, output: Path
) -> None:
    """Write a complete checkpoint: config, weights, generation config and tokenizer files."""
    shown = hub_logging.is_progress_bar_enabled()
    hub_logging.disable_progress_bar()
    try:
        model.eval().save_pretrained(output)
        tokenizer.save_pretrained(output)
    finally:
        if shown:
            hub_logging.enable_progress_bar()


def encode(tokenizer: PreTrainedTokenizerFast, examples: Sequence[SeedExample]) -> list[Row]:
    """Return each example as token ids: the rendered prompt, and the answer with its end token.

    It encodes them apart, because sampling also starts right after the prompt's last token.
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
