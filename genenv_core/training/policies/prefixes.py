"""Checks that a model computes rows with shared prefixes as it computes each row alone."""

# torch and transformers come without complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import torch

from genenv_core.engines.transformers.unloaded import partial_attention, shares_nothing
from genenv_core.errors import TrainingError
from genenv_core.training.policies.completions import completion_logits, laid_out, on_device

_ROWS = ((3, 4), (3, 4), (3, 2), (5, 3))
"""For each row of the comparison: the tokens of its prompt, and of its completion."""


_sound: set[tuple[str, ...]] = set()
"""The architectures that this process has checked without a fault."""


def check_prefixes(model: Any, checkpoint: object) -> None:
    """Raise `TrainingError` unless a model can compute shared prefixes (`training.rows`).

    First, transformers must say of its attention that it takes any mask, and that each layer
    attends to all tokens before (a window may be longer than any row to try). Then its logits of a
    few rows, shared and each alone, must be equal. The architecture decides that and not the
    weights, so a process compares them once for all updates of one architecture.
    """
    known = _architecture(model)
    if why := _attention(model) or ("" if known in _sound else _difference(model)):
        raise TrainingError(shares_nothing(checkpoint, why))
    _sound.add(known)


def _architecture(model: Any) -> tuple[str, ...]:
    """Return what decides how a model computes: its code, configuration, type and device."""
    weight = next(model.parameters())
    code = [f"{type(part).__module__}.{type(part).__qualname__}" for part in model.modules()]
    return *code, model.config.to_json_string(), str(weight.dtype), weight.device.type


def _attention(model: Any) -> str:
    """Return what in a model's attention prevents shared rows, '' for nothing."""
    if not model.is_backend_compatible():
        return f"{type(model).__name__} has an attention of its own, which may take no such mask"
    return partial_attention(model.config.get_text_config())


@torch.no_grad()
def _difference(model: Any) -> str:
    """Return how shared rows differ from rows computed alone, '' where they do not."""
    weight = next(model.parameters())
    vocabulary = model.get_input_embeddings().num_embeddings
    prompts = [[7 * i % vocabulary for i in range(tokens)] for tokens, _ in _ROWS]
    completions = [
        [(11 * i + row // 2) % vocabulary for i in range(tokens)]
        for row, (_, tokens) in enumerate(_ROWS)
    ]

    def logits(rows: slice, *, shared: bool) -> Any:
        batch = laid_out(prompts[rows], completions[rows], shared=shared)
        return completion_logits(model, on_device(batch, weight.device))

    training = model.training
    model.eval()
    together = logits(slice(None), shared=True)
    alone = torch.cat([logits(slice(row, row + 1), shared=False) for row in range(len(_ROWS))])
    model.train(training)
    apart = float((together - alone).abs().max() / alone.std())
    # Far above rounding, 5e-6 in float32; a wrong path or position changes a tenth and more.
    most = min(0.1, 1e4 * torch.finfo(weight.dtype).eps)
    return "" if apart <= most else f"its logits differ by {apart:.2g} of their spread"
