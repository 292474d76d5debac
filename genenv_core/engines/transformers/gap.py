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

from genenv_core.engines.transformers.loading import load_model, torch_threads
from genenv_core.errors import EngineError


@dataclass(frozen=True, slots=True)
class Sampled:
    """One stored rollout; `mask` is 1 where the agent sampled, and only there `logprobs` count."""

    prompt_ids: Sequence[int]
    token_ids: Sequence[int]
    logprobs: Sequence[float]
    mask: Sequence[int]


@dataclass(frozen=True, slots=True)
class LogprobGap:
    """|sampler's - trainer's| in nats over the sampled tokens: mean and largest."""

    mean: float
    largest: float
    tokens: int


def logprob_gap(
    checkpoint: Path, rows: Sequence[Sampled], *, temperature: float, threads: int
) -> LogprobGap | None:
    """Return the gap over these rows; None when nothing was sampled in them.

    It takes one row at a time, without padding; on an accelerator in bfloat16, as training does,
    else in float32.
    """
    accelerated = torch.cuda.is_available()
    dtype = torch.bfloat16 if accelerated else torch.float32
    model = load_model(checkpoint, dtype=dtype).eval().to("cuda" if accelerated else "cpu")
    try:
        with torch_threads(threads), torch.inference_mode():
            gaps = [_row(model, row, temperature) for row in rows]
    finally:
        del model
        if accelerated:
            torch.cuda.empty_cache()
    every = torch.cat([gap for gap in gaps if gap is not None] or [torch.empty(0)]).double()
    if not len(every):
        return None
    if not bool(every.isfinite().all()):
        raise EngineError(
            f"checkpoint {checkpoint}: its logits are NaN or infinite on sampled tokens: it is "
            "damaged or its training diverged"
        )
    return LogprobGap(float(every.mean()), float(every.max()), len(every))


def _row(model: torch.nn.Module, row: Sampled, temperature: float) -> torch.Tensor | None:
    """Return the gaps of a row's sampled tokens, `(tokens,)`."""
    mask = torch.tensor(list(row.mask), dtype=torch.bool)
    if not row.prompt_ids or not bool(mask.any()):
        return None
    device = next(model.parameters()).device
    ids = torch.tensor([[*row.prompt_ids, *row.token_ids]], device=device)
    logits = model(ids).logits[0, len(row.prompt_ids) - 1 : -1].float() / temperature
    made = logits.log_softmax(-1).gather(1, ids[0, len(row.prompt_ids) :, None])[:, 0].cpu()
    return (made - torch.tensor(list(row.logprobs))).abs()[mask]
