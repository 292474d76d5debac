"""The examples of a warm start: reads, checks and cuts them into steps and micro-batches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import polars as pl

from genenv_core.errors import TrainingError
from genenv_core.training.loop.rows import RowRoom, check_room, read_rows, refuse
from genenv_core.training.loop.steps import StepBatches
from genenv_core.training.policies.completions import in_order, laid_out
from genenv_core.training.policies.ranks import cut
from genenv_core.training.updates.warm_start import SftRequest

_COLUMNS = {
    "row_id": pl.String,
    "prompt_ids": pl.List(pl.Int64),
    "completion_ids": pl.List(pl.Int64),
}


@dataclass(frozen=True, slots=True)
class Examples:
    """The examples of a request, row by row, in the order of the training."""

    row_id: list[str]
    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]

    @classmethod
    def read(cls, request: SftRequest) -> Examples:
        """Return the checked rows of a request; `TrainingError` names the row and the value."""
        frame = read_rows(request.rows, _COLUMNS, f"pi_{request.policy.value}")
        refuse_row = partial(refuse, frame, key="row_id")
        for name in ("prompt_ids", "completion_ids"):
            refuse_row(pl.col(name).list.len() == 0, pl.lit("[]"), f"empty {name}")
        if left := frame.height % request.settings.batch_rows:
            raise TrainingError(
                f"rows of pi_{request.policy.value} in {request.rows}: {frame.height} fill no "
                f"whole number of steps of {request.settings.batch_rows} rows, {left} are left over"
            )
        return cls(**{name: frame[name].to_list() for name in frame.columns})

    def check_room(self, room: RowRoom) -> None:
        check_room("row_id", self.row_id, self.prompt_ids, self.completion_ids, room)


class ExampleBatches(StepBatches):
    """The steps one after the other: each has `step_rows` rows, as `per_step` micro-batches.

    Inside of a step, rows are in the cheapest order (`in_order`). Each micro-batch knows the
    completion tokens of its whole step.
    """

    def __init__(
        self, rows: Examples, step_rows: int, micro: int, processes: int, *, shared: bool = False
    ) -> None:
        super().__init__()
        cuts = cut(step_rows, most=micro, processes=processes)
        self.per_step = len(cuts)
        for first in range(0, len(rows.row_id), step_rows):
            step = range(first, first + step_rows)
            tokens = sum(len(rows.completion_ids[row]) for row in step)
            # The sum over a step does not depend on the order of its rows.
            order = in_order(step, rows.prompt_ids, rows.completion_ids, shared=shared)
            for start, stop in cuts:
                # With fewer rows than processes, an empty one is a row that does not count.
                chosen = order[start:stop] or order[:1]
                batch = laid_out(
                    [rows.prompt_ids[row] for row in chosen],
                    [rows.completion_ids[row] for row in chosen],
                    shared=shared,
                )
                counts = 1.0 if stop > start else 0.0
                self.batches.append(batch | {"tokens": tokens, "counts": counts})
