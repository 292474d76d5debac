"""The distance of the sampler's logprobs from the trainer's, which scores the same tokens again.

An update weighs each token by the ratio of the trainer's probability to the sampler's. When the
two engines disagree (another dtype, other kernels, other weights), that ratio is wrong before the
first step, and no loss shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from genenv_core.engines.transformers.scoring import (
    ScoringArithmetic,
    check_scores,
    completion_logits,
    scoring,
)


@dataclass(frozen=True, slots=True)
class Sampled:
    """One stored rollout; `mask` is 1 where the agent sampled, and only there `logprobs` count."""

    prompt_ids: Sequence[int]
    token_ids: Sequence[int]
    logprobs: Sequence[float]
    mask: Sequence[int]


@dataclass(frozen=True, slots=True)
class LogprobGap:
    """Mean and largest |sampler's - trainer's logprob| over the sampled tokens, in nats.

    `trainer` has the trainer's logprobs of each row's tokens, 0 at tokens that the agent did not
    sample, and None for a row without a sampled token.
    """

    mean: float
    largest: float
    tokens: int
    trainer: tuple[list[float] | None, ...]


def logprob_gap(
    checkpoint: Path, rows: Sequence[Sampled], *, temperature: float, arithmetic: ScoringArithmetic
) -> LogprobGap | None:
    """Return the gap over these rows; None when they have no sampled token.

    It scores each row alone, with logits divided by `temperature`. Raises `EngineError` for logits
    that are NaN or infinite.
    """
    with scoring(checkpoint, arithmetic=arithmetic) as models:
        scored = [_scored(models[0], row, temperature) for row in rows]
    gaps = [
        (made - torch.tensor(list(row.logprobs))).abs()[_mask(row)]
        for made, row in zip(scored, rows, strict=True)
        if made is not None
    ]
    every = torch.cat(gaps or [torch.empty(0)]).double()
    if not len(every):
        return None
    check_scores(every, checkpoint)
    trainer = tuple(made if made is None else [float(value) for value in made] for made in scored)
    return LogprobGap(float(every.mean()), float(every.max()), len(every), trainer)


def _scored(model: torch.nn.Module, row: Sampled, temperature: float) -> torch.Tensor | None:
    """Return the logprobs of a row's tokens, `(tokens,)`, 0 at tokens that were not sampled."""
    mask = _mask(row)
    if not row.prompt_ids or not bool(mask.any()):
        return None
    logits = completion_logits(model, row.prompt_ids, row.token_ids) / temperature
    tokens = torch.tensor(list(row.token_ids), device=logits.device)
    made = logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0].cpu()
    return torch.where(mask, made, 0.0)


def _mask(row: Sampled) -> torch.Tensor:
    return torch.tensor(list(row.mask), dtype=torch.bool)
