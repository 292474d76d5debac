"""Tiny models, tokenizers and checkpoints for the tests of engines and rollouts.

Weights are random, but logits are spread enough that greedy decoding does not repeat one token, and
the end token has a set probability, so that completions differ in length.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from genenv_core.engines.transformers.engine import TransformersEngine
from genenv_core.types import Completion, SampleRequest, SamplingParams

END = "<|im_end|>"
CHATML = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
VOCAB_SIZE = 220
EOS_ID = 1
PARAMS = SamplingParams(max_tokens=40, stop_token_ids=(EOS_ID,))
GREEDY = SamplingParams(max_tokens=40, temperature=0.0, stop_token_ids=(EOS_ID,))


def tiny_config(**changes: Any) -> Qwen2Config:
    """Return the configuration of the embedded agent's size: hidden 64, 3 layers, 4 heads."""
    settings: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 64,
        "intermediate_size": 176,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "eos_token_id": EOS_ID,
        "pad_token_id": 0,
        "bos_token_id": None,
    }
    return Qwen2Config(**{**settings, **changes})


def tiny_model(
    *, seed: int = 0, eos_probability: float = 1 / 30, spread: float = 1.0, **changes: Any
) -> Qwen2ForCausalLM:
    """Return a float32 Qwen2 with random weights whose next-token logits have std `spread`.

    Feature 0 of every embedding is a large constant, which the blocks hardly change. Only the end
    token's row of the output matrix reads it, so it acts as a bias on that logit.
    """
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(tiny_config(**changes)).eval().requires_grad_(False)
    hidden = model.config.hidden_size
    for name, weight in model.named_parameters():
        if weight.ndim == 2:
            weight.normal_(0.0, 1.0 / math.sqrt(weight.shape[1]))
        elif name.endswith("bias"):
            weight.normal_(0.0, 0.1)
    embedding = model.get_input_embeddings().weight
    embedding.normal_(0.0, 1.0)
    embedding[:, 0] = 8.0
    head = model.get_output_embeddings().weight
    head.normal_(0.0, 2.0 * spread / math.sqrt(hidden))
    head[:, 0] = 0.0
    probe = torch.randint(2, model.config.vocab_size, (8, 24))
    constant = model.model(probe).last_hidden_state[..., 0].mean()
    head[EOS_ID, :] = 0.0
    others = model(probe).logits.logsumexp(-1).mean()
    head[EOS_ID, 0] = (others + math.log(eos_probability)) / constant
    return model


def random_prompts(count: int, *, shortest: int, longest: int, seed: int = 0) -> list[list[int]]:
    """Return `count` distinct prompts of token ids, lengths in [shortest, longest]."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(shortest, longest + 1, size=count)
    return [rng.integers(2, VOCAB_SIZE, size=int(length)).tolist() for length in lengths]


def tiny_tokenizer(template: str | None = CHATML) -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer with a chat template and a few merges, under 220 tokens.

    The merges ("a"+"b" and the like) make most strings tokenisable in several ways, so that a
    sampled id sequence usually differs from the ids of its own text when that is encoded.
    """
    letters = [chr(code) for code in range(33, 127)]
    alphabet = [*letters, "\u0120", "\u010a"]
    merges = [(left, right) for left in "abcdefgh" for right in "abcdefgh"]
    tokens = ["<|pad|>", END, "<|im_start|>", *alphabet, *(left + right for left, right in merges)]
    vocab = {token: index for index, token in enumerate(tokens)}
    core = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(
        [AddedToken(token, special=True) for token in ("<|pad|>", END, "<|im_start|>")]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=END,
        pad_token="<|pad|>",
        extra_special_tokens=["<|im_start|>"],
    )
    tokenizer.chat_template = template
    return tokenizer


def byte_tokenizer(template: str) -> PreTrainedTokenizerFast:
    """Return a tokenizer that has every text, a token a byte, with a chat template."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate(["<|pad|>", *letters])}
    core = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<|pad|>")
    tokenizer.chat_template = template
    return tokenizer


def spell(text: str) -> tuple[int, ...]:
    """Return ids of single letters, never what the tokenizer's merges would give."""
    vocab = tiny_tokenizer().get_vocab()
    return tuple(vocab[letter] for letter in text)


def write_checkpoint(directory: Path, **model_settings: Any) -> Path:
    """Return `directory`, now holding a tiny model and its tokenizer, with one vocabulary."""
    tokenizer = tiny_tokenizer()
    tiny_model(vocab_size=len(tokenizer), **model_settings).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def engine_of(model: object, **settings: int) -> TransformersEngine:
    """Return an engine on one thread."""
    return TransformersEngine(model, **{"threads": 1, **settings})


def requests_of(prompts: list[list[int]], samples: int = 1) -> list[SampleRequest]:
    """Return `samples` requests for each prompt, each with its own seed."""
    return [
        SampleRequest(tuple(prompt), seed=1000 * index + sample)
        for index, prompt in enumerate(prompts)
        for sample in range(samples)
    ]


def forward_logprobs(
    model: torch.nn.Module, prompt: tuple[int, ...], completion: Completion, temperature: float
) -> list[float]:
    """Return the completion's logprobs from one plain forward pass, no cache, no padding."""
    ids = torch.tensor([prompt + completion.token_ids])
    with torch.inference_mode():
        logits = model(ids).logits[0, len(prompt) - 1 : -1].float()
    logprobs = (logits / (temperature or 1.0)).log_softmax(-1)
    return logprobs.gather(1, ids[0, len(prompt) :, None])[:, 0].tolist()


def assert_close_to_forward(
    model: torch.nn.Module,
    requests: list[SampleRequest],
    answers: list[Completion],
    temperature: float = 1.0,
) -> None:
    """Assert that every logprob equals that of a plain forward pass, to 1e-4."""
    for request, answer in zip(requests, answers, strict=True):
        expected = forward_logprobs(model, request.prompt_ids, answer, temperature)
        assert answer.logprobs == pytest.approx(expected, abs=1e-4)
