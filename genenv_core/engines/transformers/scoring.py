"""Given tokens scored by checkpoints: the distributions that predict them, and how two differ."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from genenv_core.engines.transformers.loading import load_model, torch_threads
from genenv_core.errors import EngineError
from genenv_core.freeing import trim


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
        trim()


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
