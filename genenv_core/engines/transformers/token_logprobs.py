"""Logprobs of given tokens under what the engine samples from, without sampling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from genenv_core.engines.protocol import TokenSequence
from genenv_core.engines.transformers.kv_cache import PREFILL_TOKENS
from genenv_core.engines.transformers.sampling import MAX_BLOCK_ELEMENTS, sampling_logprobs
from genenv_core.types import SamplingParams


def score_tokens(
    model: Any, sequences: Sequence[TokenSequence], params: SamplingParams
) -> list[list[float]]:
    """Return the logprob of each token of each sequence, under what is sampled from.

    Sequences of like lengths share a forward pass. Shorter ones are padded at their end, where a
    causal model does not look, so any architecture will do.
    """
    found: list[list[float]] = [[] for _ in sequences]
    vocabulary = int(model.get_input_embeddings().weight.shape[0])
    for batch in _batches(sequences, min(PREFILL_TOKENS, MAX_BLOCK_ELEMENTS // vocabulary)):
        rows = [(*sequences[i].prompt_ids, *sequences[i].token_ids) for i in batch]
        longest = max(map(len, rows))
        ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
        logits: torch.Tensor = model(input_ids=ids.to(model.device), use_cache=False).logits
        for place, index in enumerate(batch):
            first = len(sequences[index].prompt_ids)
            tokens = torch.tensor(sequences[index].token_ids, device=logits.device)
            here = sampling_logprobs(logits[place, first - 1 : len(rows[place]) - 1], params)
            found[index] = [float(value) for value in here.gather(1, tokens[:, None])[:, 0]]
    return found


def _batches(sequences: Sequence[TokenSequence], most: int) -> Iterator[list[int]]:
    """Yield indices in batches of at most `most` tokens with padding, shortest first."""

    def length(index: int) -> int:
        return len(sequences[index].prompt_ids) + len(sequences[index].token_ids)

    batch: list[int] = []
    for index in sorted(range(len(sequences)), key=length):
        if batch and (len(batch) + 1) * length(index) > most:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
