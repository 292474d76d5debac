"""The KL of one checkpoint to another along given generations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from genenv_core.engines.transformers.scoring import (
    ScoringArithmetic,
    check_scores,
    completion_logits,
    kl_terms,
    scoring,
)

Tokens = Sequence[int]


def sequence_kl(
    checkpoint: Path,
    initial: Path,
    generations: Sequence[tuple[Tokens, Tokens]],
    *,
    arithmetic: ScoringArithmetic,
) -> list[float]:
    """Return the KL of `checkpoint` to `initial` along each (prompt ids, token ids), in nats.

    It is exact at each token, over the whole vocabulary and at temperature 1, and summed over the
    tokens of a generation. Both models are in memory at once.
    """
    with scoring(checkpoint, initial, arithmetic=arithmetic) as models:
        found: list[torch.Tensor] = []
        for prompt_ids, token_ids in generations:
            ours, theirs = (
                completion_logits(model, prompt_ids, token_ids).log_softmax(-1) for model in models
            )
            found.append(kl_terms(ours, theirs).sum(-1).double().sum().cpu())
    made = torch.stack(found)
    check_scores(made, checkpoint)
    return [float(value) for value in made]
