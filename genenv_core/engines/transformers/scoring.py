"""Scores given tokens by checkpoints: the distributions that predict them, and how two differ."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from genenv_core.config.sections.compute import Device
from genenv_core.config.sections.training import Precision
from genenv_core.engines.transformers.loading import give_back, load_model, torch_threads
from genenv_core.errors import EngineError


@dataclass(frozen=True, slots=True)
class ScoringArithmetic:
    """The device and precision that score tokens: those of the configured training.

    A stage whose process has no GPU, because its engine is a server, scores on the CPU.
    """

    threads: int
    device: Device = "cpu"
    precision: Precision = "float32"


@contextmanager
def scoring(*checkpoints: Path, arithmetic: ScoringArithmetic) -> Generator[list[Any]]:
    """Yield the models of the checkpoints, all in memory at once, ready for forward passes.

    Keep no other reference to them: the end of the context empties the list to free the memory.
    """
    half = arithmetic.precision == "bfloat16"
    there = arithmetic.device == "cuda" and torch.cuda.is_available()
    models: list[Any] = []
    try:
        models += [
            load_model(one, dtype=torch.bfloat16 if half else torch.float32)
            .eval()
            .to("cuda" if there else "cpu")
            for one in checkpoints
        ]
        with torch_threads(arithmetic.threads), torch.inference_mode():
            yield models
    finally:
        models.clear()
        give_back()


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
