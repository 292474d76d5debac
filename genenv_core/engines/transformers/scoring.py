"""Given tokens scored by checkpoints: the distributions that predict them, and how two differ."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from genenv_core.engines.protocol import TokenSequence
from genenv_core.engines.transformers.kv_cache import PREFILL_TOKENS
from genenv_core.engines.transformers.loading import load_model, torch_threads
from genenv_core.engines.transformers.sampling import MAX_BLOCK_ELEMENTS, sampling_logprobs
from genenv_core.errors import EngineError
from genenv_core.types import SamplingParams


@contextmanager
def scoring(*checkpoints: Path, threads: int) -> Generator[list[Any]]:
    """Return the models of the checkpoints, all in memory at once, ready for forward passes.

    On an accelerator they are in bfloat16, as training multiplies, else in float32. Use them from
    the list: it is emptied at the end, to give the memory back.
    """
    accelerated = torch.cuda.is_available()
    dtype = torch.bfloat16 if accelerated else torch.float32
    device = "cuda" if accelerated else "cpu"
    models: list[Any] = []
    try:
        models += [load_model(one, dtype=dtype).eval().to(device) for one in checkpoints]
        with torch_threads(threads), torch.inference_mode():
            yield models
    finally:
        models.clear()
        if accelerated:
            torch.cuda.empty_cache()


def completion_logits(
    model: torch.nn.Module, prompt_ids: Sequence[int], token_ids: Sequence[int]
) -> torch.Tensor:
    """Return the logits that predict each of `token_ids`, shape (tokens, V), float32.

    It takes one row, without padding.
    """
    ids = torch.tensor([[*prompt_ids, *token_ids]], device=next(model.parameters()).device)
    return model(ids).logits[0, len(prompt_ids) - 1 : -1].float()


def kl_terms(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Return p (log p - log q): its sum over the vocabulary is KL(p || q) at a position.

    `logprobs` are log p and `reference` log q, both of shape (tokens, V).
    """
    return logprobs.exp() * (logprobs - reference)


def check_scores(scores: torch.Tensor, checkpoint: Path) -> None:
    """Raise `EngineError` when a number that a checkpoint's logits made is NaN or infinite."""
    if not bool(scores.isfinite().all()):
        raise EngineError(
            f"checkpoint {checkpoint}: its logits are NaN or infinite on sampled tokens: it is "
            "damaged or its training diverged"
        )


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
