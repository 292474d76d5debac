"""Logprobs of given tokens under the distribution that the engine samples from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from genenv_core.engines.protocol import TokenSequence
from genenv_core.engines.transformers.kv_cache import (
    PREFILL_TOKENS,
    Beginning,
    common_beginning,
    keeps_logits,
    supports_padding,
)
from genenv_core.engines.transformers.sampling import MAX_BLOCK_ELEMENTS, sampling_logprobs
from genenv_core.types import SamplingParams


def score_tokens(
    model: Any, sequences: Sequence[TokenSequence], params: SamplingParams
) -> list[list[float]]:
    """Return the logprob in nats of each token of each sequence, as the engine would sample it.

    Sequences of like lengths share a forward pass. It pads shorter ones at their end, where a
    causal model does not look, so any architecture will do. Where `supports_padding` holds, it
    computes the common beginning of all prompts once.
    """
    found: list[list[float]] = [[] for _ in sequences]
    if not sequences:
        return found
    vocabulary = int(model.get_input_embeddings().weight.shape[0])
    prompts = [sequence.prompt_ids for sequence in sequences]
    known = common_beginning(prompts) if supports_padding(model) else 0
    keeps = keeps_logits(model)
    beginning = Beginning(model, prompts[0][:known])
    rests = [(*one.prompt_ids[known:], *one.token_ids) for one in sequences]
    for batch in _batches(rests, min(PREFILL_TOKENS, MAX_BLOCK_ELEMENTS // vocabulary)):
        rows = [rests[index] for index in batch]
        longest = max(map(len, rows))
        ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
        # Logits before the first token that is asked for are never needed.
        unread = min(len(prompts[index]) for index in batch) - known - 1 if keeps else 0
        options: dict[str, Any] = {"logits_to_keep": longest - unread} if keeps else {}
        if known:
            options |= {"past_key_values": beginning.cache(len(rows))}
        logits: torch.Tensor = model(
            input_ids=ids.to(model.device), use_cache=known > 0, **options
        ).logits
        for place, index in enumerate(batch):
            first = len(prompts[index]) - known - unread
            tokens = torch.tensor(sequences[index].token_ids, device=logits.device)
            here = sampling_logprobs(logits[place, first - 1 : first - 1 + len(tokens)], params)
            found[index] = [float(value) for value in here.gather(1, tokens[:, None])[:, 0]]
    return found


def _batches(rows: Sequence[Sequence[int]], most: int) -> Iterator[list[int]]:
    """Yield indices in batches of at most `most` tokens with padding, shortest first."""
    batch: list[int] = []
    for index in sorted(range(len(rows)), key=lambda row: len(rows[row])):
        if batch and (len(batch) + 1) * len(rows[index]) > most:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
