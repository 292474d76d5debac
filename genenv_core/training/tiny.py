"""Tiny models for the warm start: a BPE tokenizer made from seed data and a small decoder.

Departure from common practice: the tokenizer's alphabet holds the characters of the seed data and
no 256-byte alphabet, which would take the room of merges and double the length of everything.
Any other character becomes the unknown token.

The architecture is Llama because AutoTokenizer of transformers 5 replaces the tokenizer of every
checkpoint of type qwen2 by Qwen's own, whatever its files say.
"""

# torch and transformers have partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging as hub_logging

from genenv_core.config.models import ModelSizeConfig

PAD, END, UNKNOWN = "<|pad|>", "<|end|>", "<|unk|>"
ROLES = ("system", "user", "assistant", "tool")

VOCABULARY = 256
"""Tokens in all. Enough for the scaffold of desk's tool calls to become single tokens."""

MAX_POSITIONS = 2048

INITIALIZER_RANGE = 0.1
"""Standard deviation of initial weights. The usual 0.02 is meant for widths in the thousands: at
width 64 the same number of steps then learns next to no arithmetic (.40 against .98 of one-call
tasks after 600 steps)."""

# Only an assistant's message is closed, by the end token that its completion ends with: so the
# rendering of a transcript starts with the rendering of each of its beginnings.
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|' + message['role'] + '|>' + (message['content'] or '') -}}"
    "{%- if message['role'] == 'assistant' -%}{{- '<|end|>' -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)


def build_tokenizer(texts: Iterable[str], vocabulary: int = VOCABULARY) -> PreTrainedTokenizerFast:
    """Return a BPE tokenizer of at most `vocabulary` tokens with a chat template.

    Each digit is its own token, so that numbers are read and written place by place; what lies
    between two digits may merge into one token. Deterministic in the texts.
    """
    bpe = Tokenizer(models.BPE(unk_token=UNKNOWN))
    bpe.pre_tokenizer = pre_tokenizers.Split(Regex("[0-9]"), "isolated")
    bpe.decoder = decoders.Fuse()
    special = [PAD, END, UNKNOWN, *(f"<|{role}|>" for role in ROLES)]
    # All digits belong to the alphabet, even those that no sample happens to hold.
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
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
