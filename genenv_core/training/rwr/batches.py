"""The stored generations of an RWR update: reads, checks and cuts them into micro-batches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl
import torch

from genenv_core.errors import NumericalError, TrainingError
from genenv_core.training.loop.rows import RowRoom, check_room, read_rows, refuse
from genenv_core.training.loop.steps import StepBatches
from genenv_core.training.policies.completions import in_order, laid_out
from genenv_core.training.policies.ranks import cut
from genenv_core.training.updates.rwr import RwrRequest

_COLUMNS = {
    "row_id": pl.String,
    "prompt_ids": pl.List(pl.Int64),
    "completion_ids": pl.List(pl.Int64),
    "weight": pl.Float64,
    "leash": pl.Boolean,
}


@dataclass(frozen=True, slots=True)
class StoredGenerations:
    """The generations of an update, row by row.

    The loss takes the likelihood of the rows with a weight above 0, whose mean is 1, and the KL
    along the rows on the `leash`. Each row is one of these, or both.
    """

    row_id: list[str]
    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    weight: list[float]
    leash: list[bool]

    @classmethod
    def read(cls, request: RwrRequest) -> StoredGenerations:
        """Return the checked rows of a request; an error names the row and the value."""
        frame = read_rows(request.rows, _COLUMNS, f"pi_{request.policy.value}")
        _check(frame)
        return cls(**{name: frame[name].to_list() for name in frame.columns})

    def check_room(self, room: RowRoom) -> None:
        check_room("row_id", self.row_id, self.prompt_ids, self.completion_ids, room)


def _check(frame: pl.DataFrame) -> None:
    """Raise `TrainingError` or `NumericalError` for the first row that RWR cannot use."""
    row_id, weight, leash = pl.col("row_id"), pl.col("weight"), pl.col("leash")
    refuse_row = partial(refuse, frame, key="row_id")
    refuse_row(row_id.is_duplicated(), row_id, "row_id repeats")
    for name in ("prompt_ids", "completion_ids"):
        refuse_row(pl.col(name).list.len() == 0, pl.lit("[]"), f"empty {name}")
    refuse_row(~weight.is_finite(), weight, "weight must be finite", error=NumericalError)
    refuse_row(weight < 0, weight, "weight must not be negative")
    refuse_row((weight == 0) & ~leash, weight, "off the leash, so weight must be positive")
    learned = frame.filter(weight > 0)["weight"].to_numpy()
    mean = float(learned.mean()) if len(learned) else 0.0
    if abs(mean - 1) > 1e-6:
        raise TrainingError(
            f"weights of pi_env's rows above 0 have mean {mean:.9g} and must have mean 1"
        )
    if not frame["leash"].any():
        raise TrainingError("no row of pi_env is on the leash: the KL needs at least one")


class RowBatches(StepBatches):
    """All rows as micro-batches, each of rows that cost least together (`in_order`).

    Several processes take them in turn, so those of one turn cost about the same. Rows on the leash
    are in batches of their own, the first ones: only these need a reference, and a turn needs it in
    all processes or in none.
    """

    def __init__(
        self, rows: StoredGenerations, micro: int, processes: int = 1, *, shared: bool = False
    ) -> None:
        super().__init__()
        ends = [len(ids) for ids in rows.completion_ids]
        learned = [length for length, weight in zip(ends, rows.weight, strict=True) if weight > 0]
        leashed = [length for length, leash in zip(ends, rows.leash, strict=True) if leash]
        self.rows, self.tokens = len(learned), sum(learned)
        """The rows whose likelihood the update trains, and their completion tokens."""
        self.leash_rows, self.leash_tokens = len(leashed), sum(leashed)
        """The rows along which the update computes the KL, and their completion tokens."""
        # The sum over all rows does not depend on their order.
        every = range(len(rows.row_id))
        order = in_order(every, rows.prompt_ids, rows.completion_ids, shared=shared)
        for leash in (True, False):
            own = [index for index in order if rows.leash[index] is leash]
            for start, stop in cut(len(own), most=micro, processes=processes) if own else ():
                # With fewer rows than processes, an empty one is a row that does not count.
                batch = _tensors(rows, own[start:stop] or own[:1], shared)
                counts = 1.0 if stop > start else 0.0
                about = {"index": len(self.batches), "counts": counts, "leash": leash}
                self.batches.append(batch | about)


def _tensors(rows: StoredGenerations, chosen: list[int], shared: bool) -> dict[str, Any]:
    """Return rows as tensors, with the weight of each completion token."""
    batch = laid_out(
        [rows.prompt_ids[index] for index in chosen],
        [rows.completion_ids[index] for index in chosen],
        shared=shared,
    )
    weight = torch.tensor([rows.weight[index] for index in chosen], dtype=torch.float32)
    return batch | {"token_weight": weight.repeat_interleave(batch["lengths"])}
