"""The stored rollouts of a GRPO update: reads them, checks them, and cuts them into steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import polars as pl
import torch
from trl.trainer.utils import pad

from genenv_core.algorithm.advantages import EQUAL_REWARDS
from genenv_core.errors import NumericalError, TrainingError
from genenv_core.training.loop.rows import RowRoom, check_room, read_rows, refuse
from genenv_core.training.loop.steps import StepBatches
from genenv_core.training.policies.ranks import cut
from genenv_core.training.updates.grpo import GrpoRequest

Value = TypeVar("Value")

_COLUMNS = {
    "group_id": pl.String,
    "prompt_ids": pl.List(pl.Int64),
    "completion_ids": pl.List(pl.Int64),
    "logprobs": pl.List(pl.Float32),
    "loss_mask": pl.List(pl.Int64),
    "reward": pl.Float64,
    "truncated": pl.Boolean,
}
SEQUENCE = "sequence"
"""The column that numbers the sequences of an attempt; rows have it only where one has several."""


@dataclass(frozen=True, slots=True)
class StoredRollouts:
    """The rollouts of an update, row by row; a group is `group_size` adjacent rows.

    Where fewer attempts of a group have a verdict, empty rows, without a reward and without a
    sampled token, fill the group up. TRL's means leave them out, and they have no part in any loss.

    A further sequence of an attempt is a row too. It has no reward of its own, so that an attempt
    counts once in the mean of its group. Its advantage is that of its attempt's first row; `heads`
    has the place of this first row for each row, and is None where each attempt has one sequence.
    Groups are then as wide as the one with the most sequences.
    """

    group_size: int
    groups: tuple[str, ...]
    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    logprobs: list[list[float]]
    loss_mask: list[list[int]]
    rewards: list[float | None]
    heads: list[int] | None = None

    @classmethod
    def read(cls, request: GrpoRequest) -> StoredRollouts:
        """Return the checked rollouts of a request; a `TrainingError` names group and value."""
        who = f"pi_{request.policy.value}"
        frame = read_rows(request.rows, _COLUMNS, who, maybe={SEQUENCE: pl.Int64})
        several = SEQUENCE in frame.columns
        _check(frame, request.group_size)
        size = request.group_size
        if several:
            _check_sequences(frame, request.settings.loss_type)
            size = max(size, *frame.group_by("group_id").len()["len"].to_list())
        frame = _whole(frame, size)
        columns = {name: frame[name].to_list() for name in frame.columns}
        groups = tuple(columns.pop("group_id")[::size])
        truncated, rewards = columns.pop("truncated"), columns.pop("reward")
        heads = None
        if several:
            numbers = columns.pop(SEQUENCE)
            heads = [row - number for row, number in enumerate(numbers)]
            rewards = [None if n else one for n, one in zip(numbers, rewards, strict=True)]
        rollouts = cls(size, groups, rewards=rewards, heads=heads, **columns)
        if not request.settings.mask_truncated:
            return rollouts
        lengths = map(len, rollouts.completion_ids)
        rows = zip(truncated, lengths, strict=True)
        return rollouts.only([[not ended] * length for ended, length in rows])

    def verdicts(self) -> dict[str, int]:
        """Return how many rows of each group have a reward."""
        size, rewards = self.group_size, self.rewards
        return {
            group: sum(reward is not None for reward in rewards[index * size : (index + 1) * size])
            for index, group in enumerate(self.groups)
        }

    def of_attempts(self, values: Sequence[Value]) -> list[Value]:
        """Return for each row the value of its attempt's first row; `values` has one a row."""
        return list(values) if self.heads is None else [values[head] for head in self.heads]

    def heads_within(self, groups: Sequence[str]) -> list[int]:
        """Return for each row of whole groups the place of its attempt's first row among them."""
        size, heads = self.group_size, self.of_attempts(range(len(self.rewards)))
        firsts = [self.groups.index(group) * size for group in groups]
        return [
            place * size + heads[row] - first
            for place, first in enumerate(firsts)
            for row in range(first, first + size)
        ]

    @property
    def tokens(self) -> int:
        """Number of tokens that count in the loss."""
        return sum(map(sum, self.loss_mask))

    def near(self, logprobs: list[list[float]], most: float) -> StoredRollouts:
        """Return the rollouts, with a loss only where `logprobs` are within `most` of the stored.

        A row of `logprobs` may be longer than its completion.
        """
        rows = zip(self.logprobs, logprobs, strict=True)
        # What is behind a completion's end is padding.
        return self.only([[abs(a - b) <= most for a, b in zip(*row, strict=False)] for row in rows])

    def only(self, kept: list[list[bool]]) -> StoredRollouts:
        """Return the rollouts, with a loss only on the tokens in `kept`.

        The other tokens become like observation tokens: logprob 0, so that no ratio overflows.
        """
        rows = zip(self.loss_mask, kept, strict=True)
        mask = [[m if k else 0 for m, k in zip(*row, strict=True)] for row in rows]
        rows = zip(self.logprobs, mask, strict=True)
        logprobs = [[p if m else 0.0 for p, m in zip(*row, strict=True)] for row in rows]
        return replace(self, loss_mask=mask, logprobs=logprobs)

    def padded(self, rows: Sequence[int]) -> dict[str, torch.Tensor]:
        """Return ids and masks of rows, padded with 0: prompts on the left, as TRL pads them.

        Shapes: (rows, longest prompt), (rows, longest completion).
        """
        tensors: dict[str, torch.Tensor] = {}
        sides = (("prompt", self.prompt_ids, "left"), ("completion", self.completion_ids, "right"))
        for name, stored, side in sides:
            ids = [torch.tensor(stored[row]) for row in rows]
            ones = [torch.ones_like(one) for one in ids]
            tensors[f"{name}_ids"] = pad(ids, padding_side=side)
            tensors[f"{name}_mask"] = pad(ones, padding_side=side)
        return tensors

    def check_room(self, room: RowRoom) -> None:
        groups = [group for group in self.groups for _ in range(self.group_size)]
        check_room("group_id", groups, self.prompt_ids, self.completion_ids, room)


def _check(frame: pl.DataFrame, group_size: int) -> None:
    """Raise `TrainingError` or `NumericalError` for the first group that GRPO cannot use."""
    lengths = {
        name: pl.col(name).list.len() for name in ("completion_ids", "logprobs", "loss_mask")
    }
    reward = pl.col("reward")
    logprobs, mask = pl.col("logprobs").list, pl.col("loss_mask").list
    bad_mask = mask.eval((pl.element() != 0) & (pl.element() != 1)).list.any()
    refuse_row = partial(refuse, frame, key="group_id")
    refuse_row(pl.col("prompt_ids").list.len() == 0, pl.lit("[]"), "empty prompt")
    refuse_row(lengths["completion_ids"] == 0, pl.lit("[]"), "empty completion")
    for name in ("logprobs", "loss_mask"):
        differs = lengths[name] != lengths["completion_ids"]
        both = pl.format("{} and {}", lengths[name], lengths["completion_ids"])
        refuse_row(differs, both, f"{name} and completion_ids differ in length")
    refuse_row(bad_mask, pl.col("loss_mask"), "loss_mask holds more than 0 and 1")
    refuse_row(mask.sum() == 0, mask.len(), "no sampled token (loss_mask all 0)")
    infinite = logprobs.eval(~pl.element().is_finite()).list.any()
    refuse_row(infinite, pl.col("logprobs"), "logprobs must be finite", error=NumericalError)
    refuse_row(logprobs.max() > 1e-3, logprobs.max(), "logprobs above 0")
    refuse_row(~reward.is_finite(), reward, "reward must be finite", error=NumericalError)
    numbered = SEQUENCE in frame.columns
    attempts = (pl.col(SEQUENCE) == 0).sum() if numbered else pl.len()
    groups = frame.group_by("group_id", maintain_order=True).agg(
        attempts.alias("rows"), reward.min().alias("low"), reward.max().alias("high")
    )
    rows, low, high = pl.col("rows"), pl.col("low"), pl.col("high")
    refuse_group = partial(refuse, groups, key="group_id")
    refuse_group(rows > group_size, rows, f"expected at most {group_size} rows")
    # Equal rewards give advantages of 0 and still enlarge dapo's denominator: never trained on.
    refuse_group(high - low <= EQUAL_REWARDS, low, "all rewards equal, no signal")
    span = frame.select(pl.col("group_id").rle().struct.unnest())
    refuse(span, pl.col("value").is_duplicated(), pl.col("len"), "rows not adjacent", key="value")


def _check_sequences(frame: pl.DataFrame, loss_type: str) -> None:
    """Raise `TrainingError` for rows that are no sequences of attempts, or that a loss cannot take.

    The loss `grpo` takes the mean of each row, so an attempt of three sequences would count three
    times.
    """
    number, before = pl.col(SEQUENCE), pl.col(SEQUENCE).shift().over("group_id")
    follows = (number == 0) | (number == before + 1).fill_null(value=False)
    same = (number == 0) | (pl.col("reward") == pl.col("reward").shift())
    refuse(frame, ~follows, number, "sequences of an attempt not in order", key="group_id")
    refuse(frame, ~same, pl.col("reward"), "two rewards in one attempt", key="group_id")
    if loss_type == "grpo" and frame[SEQUENCE].sum():
        raise TrainingError(
            "grpo.loss_type grpo takes the mean of each sequence by itself, and some attempts have "
            "several: they would count several times; set dapo, bnpo or dr_grpo"
        )


def _whole(frame: pl.DataFrame, group_size: int) -> pl.DataFrame:
    """Return the rows with empty rows behind each group that has fewer than `group_size`."""
    if frame.height == frame["group_id"].n_unique() * group_size:
        return frame
    groups: list[pl.DataFrame] = []
    for _, rows in frame.group_by("group_id", maintain_order=True):
        one = pl.lit([0])
        empty = rows.head(1).with_columns(
            completion_ids=pl.col("completion_ids").list.head(1),
            logprobs=one.cast(pl.List(pl.Float32)),
            loss_mask=one.cast(pl.List(pl.Int64)),
            reward=pl.lit(None, pl.Float64),
            truncated=pl.lit(False),
            **({SEQUENCE: pl.lit(0, pl.Int64)} if SEQUENCE in frame.columns else {}),
        )
        groups += [rows, *[empty] * (group_size - rows.height)]
    return pl.concat(groups)


class GroupBatches(StepBatches):
    """One pass over the groups: steps of `per_step` groups, cut into micro-batches of rows.

    Several processes take the micro-batches of a step in turn, `micro_batches_per_step` each.
    """

    def __init__(
        self, rollouts: StoredRollouts, *, per_step: int, micro: int, seed: int, processes: int
    ) -> None:
        super().__init__()
        self._groups, self._rows, self._seed = rollouts.groups, rollouts.group_size, seed
        self._first = {group: index * self._rows for index, group in enumerate(self._groups)}
        self._per_step, self.micro = min(per_step, len(rollouts.groups)), micro
        self._processes = processes
        self.micro_batches_per_step = len(self._cut(self._per_step)) // processes
        self.set_epoch(0)

    def _cut(self, groups: int) -> list[tuple[int, int]]:
        return cut(groups * self._rows, most=self.micro, processes=self._processes)

    def stored(self, batch: dict[str, Any]) -> tuple[int, ...]:
        """Return the stored rows of a micro-batch, by index; an empty one has the step's first.

        Processes of a sharded model compute in step, so a process without a row computes that one.
        """
        groups, start, stop = batch["groups"], batch["start"], batch["stop"]
        rows = range(start, stop) if stop > start else range(1)
        return tuple(self._first[groups[row // self._rows]] + row % self._rows for row in rows)

    def set_epoch(self, epoch: int) -> None:
        """Make the batches of pass `epoch` (from 0): its own order, every group once."""
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + epoch)
        permutation = torch.randperm(len(self._groups), generator=generator)
        order = [int(index) for index in permutation]
        self.batches = []
        for first in range(0, len(order), self._per_step):
            groups = [self._groups[index] for index in order[first : first + self._per_step]]
            for start, stop in self._cut(len(groups)):
                self.batches.append({"groups": groups, "start": start, "stop": stop})
