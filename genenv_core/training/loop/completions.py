"""Rows of a prompt and its completion as tensors, and the logits that predict the completions."""

# torch has partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def padded(prompts: Sequence[list[int]], completions: Sequence[list[int]]) -> dict[str, Any]:
    """Return right-padded tensors (B, L); `scored` (B, L - 1) marks what predicts a completion."""
    lengths = torch.tensor([[len(p), len(c)] for p, c in zip(prompts, completions, strict=True)])
    width = int(lengths.sum(1).max())
    position = torch.arange(width)
    input_ids = torch.zeros(len(prompts), width, dtype=torch.long)
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        input_ids[row, : len(prompt) + len(completion)] = torch.tensor(prompt + completion)
    first, end = lengths[:, :1], lengths.sum(1, keepdim=True)
    return {
        "input_ids": input_ids,
        "attention_mask": (position < end).long(),
        "scored": (position[1:] >= first) & (position[1:] < end),
        # Logits before the first completion of the batch are never needed.
        "keep": width - int(lengths[:, 0].min()) + 1,
    }


def completion_logits(model: Any, batch: dict[str, Any]) -> Any:
    """Return the logits at each completion position of such rows, shape (tokens, V), float32."""
    keep, scored = batch["keep"], batch["scored"]
    output = model(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        logits_to_keep=keep,
        use_cache=False,
    )
    return output.logits[:, :-1][scored[:, scored.size(1) + 1 - keep :]].float()
