"""Chooses next tokens from logits, with randomness that belongs to a request and not to a batch.

Every request owns a stream of uniform numbers, Philox keyed by its seed; step t of its completion
uses number t. A number becomes a token by inverting the cumulative distribution. So the other
requests of the batch, and the row of a request, change nothing but rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genenv_core.errors import EngineError
from genenv_core.types import SamplingParams

SEED_SPACE = 2**128
"""Philox keys have 128 bits; seeds are taken modulo this, so negative ones work too."""

MAX_BLOCK_ELEMENTS = 2**25
"""Rows x vocabulary handled at once: the float64 sums of one block stay under 256 MiB."""


def uniform_streams(seeds: Sequence[int], count: int) -> NDArray[np.float64]:
    """Return `(len(seeds), count)` numbers in [0, 1), row i from the stream of seed i.

    A shorter stream of a seed is a prefix of a longer one.
    """
    streams = np.empty((len(seeds), count), dtype=np.float64)
    for row, seed in enumerate(seeds):
        np.random.Generator(np.random.Philox(key=seed % SEED_SPACE)).random(out=streams[row])
    return streams


def check_params(params: SamplingParams, vocab_size: int) -> None:
    """Raise `EngineError` for parameters with which nothing can be sampled."""
    if params.max_tokens < 1:
        raise EngineError(f"sampling: max_tokens is {params.max_tokens}; set at least 1")
    if not math.isfinite(params.temperature) or params.temperature < 0:
        raise EngineError(
            f"sampling: temperature is {params.temperature}; set a number >= 0 (0 means greedy)"
        )
    if not 0 < params.top_p <= 1:
        raise EngineError(f"sampling: top_p is {params.top_p}; set a number in (0, 1]")
    outside = [token for token in params.stop_token_ids if not 0 <= token < vocab_size]
    if outside:
        raise EngineError(
            f"sampling: stop token ids {outside} are outside the model's vocabulary of "
            f"{vocab_size}: use the tokenizer that belongs to the checkpoint"
        )


def sampling_logprobs(logits: Tensor, params: SamplingParams) -> Tensor:
    """Return the logprobs `(rows, vocab)`, float32, that `choose_tokens` draws by; -inf: never.

    `logits` are `(rows, vocab)`. The temperature must be above 0.
    """
    logprobs = (logits.float() / params.temperature).log_softmax(dim=-1)
    if params.top_p == 1.0:
        return logprobs
    kept = _nucleus(logprobs.exp(), params.top_p)
    return (kept / kept.sum(dim=-1, keepdim=True)).log()


def choose_tokens(
    logits: Tensor, uniforms: Tensor | None, params: SamplingParams
) -> tuple[Tensor, Tensor]:
    """Return token ids `(rows,)` int64 and their logprobs `(rows,)` float32.

    Args:
        logits: `(rows, vocab)`, any float type; computed on in float32.
        uniforms: `(rows,)` float64 in [0, 1), or None where the temperature is 0.
        params: temperature 0 takes the largest logit and reports logprobs at temperature 1.

    A row with NaN or +inf logits gets a logprob that is not finite; the caller checks. A logit of
    -inf is a token of probability zero.
    """
    block = max(1, MAX_BLOCK_ELEMENTS // logits.shape[-1])
    if logits.shape[0] <= block:
        return _choose_block(logits, uniforms, params)
    parts = [
        _choose_block(
            logits[start : start + block],
            None if uniforms is None else uniforms[start : start + block],
            params,
        )
        for start in range(0, logits.shape[0], block)
    ]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def _choose_block(
    logits: Tensor, uniforms: Tensor | None, params: SamplingParams
) -> tuple[Tensor, Tensor]:
    """Do the work of `choose_tokens` for rows that fit into memory together."""
    logits = logits.float()
    if params.temperature not in (0.0, 1.0):
        logits = logits / params.temperature
    logprobs = logits.log_softmax(dim=-1)
    if uniforms is None:
        tokens = logits.argmax(dim=-1, keepdim=True)
    else:
        weights = logprobs.exp()
        if params.top_p < 1.0:
            weights = _nucleus(weights, params.top_p)
        # float64: with float32 sums, u * total can round up to the total, and the draw would fall
        # behind the last token of positive weight.
        cumulative = weights.cumsum(dim=-1, dtype=torch.float64)
        targets = (uniforms * cumulative[:, -1]).unsqueeze(1)
        tokens = torch.searchsorted(cumulative, targets, right=True)
        tokens.clamp_(max=logits.shape[-1] - 1)
    return tokens.squeeze(1), logprobs.gather(1, tokens).squeeze(1)


def _nucleus(weights: Tensor, top_p: float) -> Tensor:
    """Return `weights (rows, vocab)` with zeros outside the smallest set of mass >= top_p."""
    ranked, order = weights.sort(dim=-1, descending=True, stable=True)
    before = ranked.cumsum(dim=-1, dtype=torch.float64) - ranked
    # The first token has nothing before it, so the set is never empty.
    return torch.zeros_like(weights).scatter(1, order, ranked * (before < top_p))
