"""Stored generations of an RWR update: read, checked, and planned into micro-batches."""

from __future__ import annotations

from typing import Any

import polars as pl
import torch

from genenv_core.errors import NumericalError, TrainingError
from genenv_core.training.base import RwrRequest
from genenv_core.training.planned import PlanDataset
from genenv_core.training.ranks import cut
from genenv_core.training.rows import read_rows, refuse

_COLUMNS = {
    "row_id": pl.String,
    "prompt_ids": pl.List(pl.Int64),
    "completion_ids": pl.List(pl.Int64),
    "weight": pl.Float64,
}


def read_generations(request: RwrRequest) -> dict[str, list[Any]]:
    """Return the checked columns of the update; errors name the row and the value."""
    frame = read_rows(request.rows, _COLUMNS, "pi_env")
    key, weight = "row_id", pl.col("weight")
    refuse(frame, pl.col(key).is_duplicated(), pl.col(key), "row_id repeats", key=key)
    for name in ("prompt_ids", "completion_ids"):
        refuse(frame, pl.col(name).list.len() == 0, pl.lit("[]"), f"empty {name}", key=key)
    refuse(
        frame, ~weight.is_finite(), weight, "weight must be finite", key=key, error=NumericalError
    )
    refuse(frame, weight < 0, weight, "weight must not be negative", key=key)
    mean = float(frame["weight"].to_numpy().mean())
    if abs(mean - 1) > 1e-6:
        raise TrainingError(f"weights of pi_env's rows have mean {mean:.9g} and must have mean 1")
    return {name: frame[name].to_list() for name in frame.columns}


class RowPlan(PlanDataset):
    """All rows as padded micro-batches, rows of about the same length together.

    Several processes take them in turn, so that those of one turn are of about the same length.
    """

    def __init__(self, rows: dict[str, list[Any]], micro: int, processes: int = 1) -> None:
        super().__init__()
        self.rows = len(rows["row_id"])
        self.tokens = sum(len(ids) for ids in rows["completion_ids"])
        lengths = [
            len(prompt) + len(completion)
            for prompt, completion in zip(rows["prompt_ids"], rows["completion_ids"], strict=True)
        ]
        # The sum over all rows does not depend on their order, so the order may save padding.
        order = sorted(range(self.rows), key=lambda index: (lengths[index], index))
        for start, stop in cut(self.rows, most=micro, processes=processes):
            # An empty one, with fewer rows than processes, is a row that counts for nothing.
            batch = _pad(rows, order[start:stop] or order[:1])
            counts = 1.0 if stop > start else 0.0
            self.batches.append(batch | {"index": len(self.batches), "counts": counts})


def _pad(rows: dict[str, list[Any]], chosen: list[int]) -> dict[str, Any]:
    """Return right-padded tensors (B, L); `scored` (B, L - 1) marks what predicts a completion."""
    prompts = [rows["prompt_ids"][index] for index in chosen]
    completions = [rows["completion_ids"][index] for index in chosen]
    lengths = torch.tensor([[len(p), len(c)] for p, c in zip(prompts, completions, strict=True)])
    width = int(lengths.sum(1).max())
    position = torch.arange(width)
    input_ids = torch.zeros(len(chosen), width, dtype=torch.long)
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        input_ids[row, : len(prompt) + len(completion)] = torch.tensor(prompt + completion)
    first, end = lengths[:, :1], lengths.sum(1, keepdim=True)
    scored = (position[1:] >= first) & (position[1:] < end)
    weight = torch.tensor([rows["weight"][index] for index in chosen], dtype=torch.float32)
    return {
        "input_ids": input_ids,
        "attention_mask": (position < end).long(),
        "scored": scored,
        "token_weight": weight.unsqueeze(1).expand_as(scored)[scored],
        # Logits before the first completion of the batch are never needed.
        "keep": width - int(lengths[:, 0].min()) + 1,
    }
