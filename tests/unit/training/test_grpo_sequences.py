"""GRPO on attempts of several sequences, with the real TRL trainer on a tiny model.

Invariants: an attempt's reward counts once in its group and each of its sequences has its
advantage; the gradient of the step is the sum of those of the sequences, divided by the sampled
tokens of all; rows of attempts with one sequence are as without the column; rows that are no
sequences, and a loss that would count them several times, are refused.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from genenv_core.config.sections.updates import GrpoConfig
from genenv_core.errors import TrainingError
from genenv_core.training.grpo import trainer as grpo
from genenv_core.training.grpo.batches import StoredRollouts
from genenv_core.training.updates.grpo import GrpoRequest
from genenv_core.training.updates.table import run_update
from tests.mutations import mutation
from tests.unit.training.builders_training import (
    grpo_of,
    grpo_rows,
    load,
    relative_error,
    tiny_checkpoint,
    token_logprobs,
)

BATCHES = "genenv_core/training/grpo/batches.py"
STORED = "genenv_core/training/grpo/stored.py"

ADVANTAGES = [1.154509, -0.577255, -0.577255]
"""Of the rewards 1, 0, 0 by hand: mean 1/3, deviation sqrt(1/3) = .577350; (2/3) / (.577350 + 1e-4)
and (-1/3) / (.577350 + 1e-4)."""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("policy") / "agent", seed=1)


def rows_of(policy: Path) -> list[dict[str, Any]]:
    """Return a group of three attempts: of two sequences, of one, and of three."""
    rows = grpo_rows(1, 6, sampler=load(policy), completion=(4, 9), masked=True)
    numbers, rewards = (0, 1, 0, 0, 1, 2), (1.0, 1.0, 0.0, 0.0, 0.0, 0.0)
    others = grpo_rows(6, 1, sampler=load(policy), seed=5, completion=(4, 9), masked=True)
    for row, other, number, reward in zip(rows, others, numbers, rewards, strict=True):
        if number:  # a prompt of its own
            row |= {name: other[name] for name in ("prompt_ids", "completion_ids", "logprobs")}
            row["loss_mask"] = other["loss_mask"]
        row |= {"sequence": number, "reward": reward}
    return rows


def request_of(
    tmp_path: Path, policy: Path, rows: list[dict[str, Any]], *, size: int = 3, **settings: Any
) -> GrpoRequest:
    request = grpo_of(
        tmp_path, "out", rows, policy, group_size=size, **{"max_grad_norm": 1000} | settings
    )
    if "sequence" in rows[0]:
        numbers = pl.Series("sequence", [row["sequence"] for row in rows], dtype=pl.Int64)
        pl.read_parquet(request.rows).with_columns(numbers).write_parquet(request.rows)
    return request


@mutation(
    "a further sequence has a reward of its own in the group", BATCHES,
    "rewards = [None if n else one for n, one in zip(numbers, rewards, strict=True)]", "pass",
)  # fmt: skip
@mutation(
    "a further sequence has no advantage", STORED,
    "if self.rollouts.heads is not None:", "if False:",
)  # fmt: skip
@mutation(
    "a row has the advantage of another attempt", BATCHES,
    "place * size + heads[row] - first", "place * size",
)  # fmt: skip
def test_the_gradient_is_the_sum_over_all_sequences_with_the_attempts_advantage(
    tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(policy)
    seen: list[dict[str, torch.Tensor]] = []
    original = grpo.StoredRolloutTrainer._get_grad_norm

    def record(self: Any, model: Any, grad_norm: Any = None) -> float:
        seen.append({name: p.grad.clone() for name, p in model.named_parameters()})
        return original(self, model, grad_norm)

    monkeypatch.setattr(grpo.StoredRolloutTrainer, "_get_grad_norm", record)
    result = run_update(request_of(tmp_path, policy, rows, passes=1, micro_batch_rows=4))
    tokens = sum(sum(row["loss_mask"]) for row in rows)
    by_row = [ADVANTAGES[place] for place in (0, 0, 1, 2, 2, 2)]
    total: dict[str, torch.Tensor] = {}
    for row, advantage in zip(rows, by_row, strict=True):  # each sequence alone
        model = load(policy)
        ratio = (token_logprobs(model, row, 1.0) - torch.tensor(row["logprobs"])).exp()
        mask = torch.tensor(row["loss_mask"])
        (-(ratio * advantage * mask).sum() / tokens).backward()
        for name, weight in model.named_parameters():
            assert weight.grad is not None
            total[name] = total.get(name, torch.zeros_like(weight)) + weight.grad
    (found,) = seen
    assert relative_error(found, total) < 1e-4
    assert result.metrics["reward_mean"] == pytest.approx(1 / 3)  # of attempts
    assert result.metrics["reward_std"] == pytest.approx(math.sqrt(1 / 3))


def test_rows_are_read_by_hand(tmp_path: Path, policy: Path) -> None:
    rollouts = StoredRollouts.read(request_of(tmp_path, policy, rows_of(policy)))
    assert rollouts.group_size == 6
    assert rollouts.rewards == [1.0, None, 0.0, 0.0, None, None]
    assert rollouts.heads == [0, 0, 2, 3, 3, 3]
    assert rollouts.verdicts() == {"g000": 3}
    assert rollouts.heads_within(["g000", "g000"]) == [0, 0, 2, 3, 3, 3, 6, 6, 8, 9, 9, 9]


def test_groups_are_as_wide_as_the_one_with_the_most_sequences(
    tmp_path: Path, policy: Path
) -> None:
    narrow = [row | {"group_id": "g001"} for row in rows_of(policy)[:3]]
    narrow[2]["reward"] = 0.0
    request = request_of(tmp_path, policy, [*rows_of(policy), *narrow])
    rollouts = StoredRollouts.read(request)
    assert rollouts.rewards[6:] == [1.0, None, 0.0, None, None, None]
    assert rollouts.heads == [0, 0, 2, 3, 3, 3, 6, 6, 8, 9, 10, 11]
    assert [sum(mask) for mask in rollouts.loss_mask[9:]] == [0, 0, 0]


def test_a_truncated_attempt_has_no_loss_in_any_sequence(tmp_path: Path, policy: Path) -> None:
    rows = [row | {"truncated": row["reward"] == 1.0} for row in rows_of(policy)]
    request = request_of(tmp_path, policy, rows, mask_truncated=True)
    counted = [sum(mask) > 0 for mask in StoredRollouts.read(request).loss_mask]
    assert counted == [False, False, True, True, True, True]


def test_attempts_of_one_sequence_are_as_without_the_column(tmp_path: Path, policy: Path) -> None:
    rows = grpo_rows(2, 3, sampler=load(policy))
    plain = StoredRollouts.read(request_of(tmp_path, policy, rows))
    numbered = [row | {"sequence": 0} for row in rows]
    same = StoredRollouts.read(request_of(tmp_path, policy, numbered))
    assert plain.heads is None and same.heads == list(range(6))
    assert (same.rewards, same.loss_mask, same.group_size) == (
        plain.rewards, plain.loss_mask, plain.group_size,
    )  # fmt: skip


@mutation(
    "rows of a sequence may be torn apart",
    BATCHES,
    "refuse(frame, ~follows,",
    "refuse(frame, pl.lit(value=False),",
)
@mutation(
    "an attempt may have two rewards",
    BATCHES,
    "refuse(frame, ~same,",
    "refuse(frame, pl.lit(value=False),",
)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({1: {"sequence": 2}}, "'g000': sequences of an attempt not in order, got 2"),
        ({0: {"sequence": 1}}, "'g000': sequences of an attempt not in order, got 1"),
        ({5: {"reward": 0.5}}, "'g000': two rewards in one attempt, got 0.5"),
    ],
)
def test_rows_that_are_no_attempt_are_refused(
    tmp_path: Path, policy: Path, change: dict[int, dict[str, Any]], message: str
) -> None:
    rows = rows_of(policy)
    for place, values in change.items():
        rows[place] |= values
    with pytest.raises(TrainingError, match=message):
        StoredRollouts.read(request_of(tmp_path, policy, rows))


@mutation(
    "a mean of sequences counts an attempt several times", BATCHES,
    'if loss_type == "grpo" and', 'if loss_type == "none" and',
)  # fmt: skip
def test_the_mean_of_rows_is_refused(tmp_path: Path, policy: Path) -> None:
    with pytest.raises(TrainingError, match="loss_type grpo takes the mean of each sequence"):
        StoredRollouts.read(request_of(tmp_path, policy, rows_of(policy), loss_type="grpo"))
    single = [row | {"sequence": 0} for row in grpo_rows(1, 3, sampler=load(policy))]
    StoredRollouts.read(request_of(tmp_path, policy, single, loss_type="grpo"))
    assert GrpoConfig().loss_type == "dapo"
