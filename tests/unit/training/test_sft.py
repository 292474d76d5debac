"""The warm start of given models with the real TRL trainer on tiny ones.

Invariants: the gradient of each step is the hand-written mean NLL of its own rows' completion
tokens, in their order; micro-batches change nothing but rounding; rows that fill no whole number of
steps are refused; equal requests give equal bits; rounds that follow each other end on the bits of
one update; adapters are handed on merged.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from genenv_core.canonical import file_sha256
from genenv_core.config.sections.training import LoraConfig, TrainingConfig
from genenv_core.engines.adapters import ADAPTER_WEIGHTS
from genenv_core.errors import Stopped, TrainingError
from genenv_core.training.loop.checkpoints import request_digest
from genenv_core.training.requests import TrainerCheckpoints
from genenv_core.training.updates.table import run_update
from genenv_core.training.updates.warm_start import SftRequest
from genenv_core.types import Policy
from tests.examples import some
from tests.mutations import mutation
from tests.unit.training.builders_training import (
    Gradient,
    load,
    noted_gradients,
    random_rows,
    relative_error,
    sft_of,
    tiny_checkpoint,
    token_logprobs,
    weights,
)

BATCHES = "genenv_core/training/sft/batches.py"
TRAINER = "genenv_core/training/sft/trainer.py"
REQUESTS = "genenv_core/training/updates/warm_start.py"
STEPS = "genenv_core/training/loop/steps.py"
SHARDS = "genenv_core/training/policies/shards.py"
CHECKPOINTS = "genenv_core/training/loop/checkpoints.py"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("policy") / "given", seed=1)


@pytest.fixture
def gradients(monkeypatch: pytest.MonkeyPatch) -> list[Gradient]:
    return noted_gradients(monkeypatch)


def nll(model: Any, rows: list[dict[str, Any]]) -> torch.Tensor:
    tokens = sum(len(row["completion_ids"]) for row in rows)
    return torch.stack([-token_logprobs(model, row).sum() / tokens for row in rows]).sum()


def gradient_of(model: Any, loss: torch.Tensor) -> Gradient:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


@mutation(
    "a step of a warm start trains the rows of the first one", BATCHES,
    "step = range(first, first + step_rows)", "step = range(step_rows)",
)  # fmt: skip
@mutation(
    "the loss of a warm start grows with the length of its answers", TRAINER,
    ' / inputs["tokens"]', "",
)  # fmt: skip
def test_each_step_follows_the_mean_likelihood_of_its_own_rows(
    tmp_path: Path, policy: Path, gradients: list[Gradient]
) -> None:
    rows = random_rows(6, seed=4)
    request = sft_of(
        tmp_path, "out", rows, policy, batch_rows=3, micro_batch_rows=2, learning_rate=1e-7,
        max_grad_norm=1000,
    )  # fmt: skip
    result = run_update(request)
    assert (result.steps, result.action.value, len(gradients)) == (2, "updated", 2)
    model = load(policy)
    for step, seen in enumerate(gradients):  # the rate is too low for the first to move the second
        expected = gradient_of(model, nll(model, rows[3 * step : 3 * step + 3]))
        assert relative_error(seen, expected) < 1e-4
    assert result.metrics["loss"] == pytest.approx(float(nll(model, rows[3:])), rel=1e-4)
    norm = math.sqrt(sum(float(g.square().sum()) for g in gradients[1].values()))
    assert result.metrics["grad_norm"] == pytest.approx(norm, rel=1e-5)


def test_micro_batches_change_rounding_alone_and_equal_requests_give_equal_bits(
    tmp_path: Path, policy: Path
) -> None:
    rows = random_rows(8, seed=5)
    made = {
        name: run_update(
            sft_of(tmp_path, name, rows, policy, batch_rows=4, micro_batch_rows=micro)
        ).checkpoint
        for name, micro in (("whole", 4), ("again", 4), ("cut", 1))
    }
    digests = {name: file_sha256(path / "model.safetensors") for name, path in made.items()}
    assert digests["whole"] == digests["again"] != file_sha256(policy / "model.safetensors")
    whole, cut = weights(made["whole"]), weights(made["cut"])
    for name, value in whole.items():
        assert torch.allclose(value, cut[name], atol=2e-6), name


def rounds_of(home: Path, rows: list[dict[str, Any]], policy: Path, **values: Any) -> SftRequest:
    """Return the last of two rounds on `rows`, the first of which was carried out."""
    half = len(rows) // 2
    first = sft_of(home, "first", rows[:half], policy, leaves=home / "left", **values)
    run_update(first)
    return sft_of(home, "second", rows[half:], policy, follows=home / "left", **values)


WAYS = {"whole": TrainingConfig(), "lora": TrainingConfig(lora=LoraConfig(rank=2, merge=True))}


@mutation(
    "each round of a warm start begins at the given model", STEPS,
    "            self._take_back(self.follows)\n", "            pass\n",
)  # fmt: skip
@mutation(
    "each round of a warm start begins without Adam's moments", SHARDS,
    "value = tensors.get(f\"{moment}/{name}\")", "value = None", by="[whole]",
)  # fmt: skip
@pytest.mark.parametrize("way", some(WAYS, ("whole",)))
def test_rounds_are_one_optimization(tmp_path: Path, policy: Path, way: str) -> None:
    rows = random_rows(8, seed=6)
    values: dict[str, Any] = {"batch_rows": 2, "training": WAYS[way], "learning_rate": 1e-2}
    whole = run_update(sft_of(tmp_path, "whole", rows, policy, **values))
    second = rounds_of(tmp_path, rows, policy, **values)
    assert second.checkpoint == policy
    made = run_update(second)
    assert (whole.steps, made.steps) == (4, 2)
    assert made.metrics == whole.metrics
    same = [file_sha256(one.checkpoint / "model.safetensors") for one in (whole, made)]
    assert same[0] == same[1]


@mutation(
    "a round that continues begins as it did at first", CHECKPOINTS,
    "if not self.resumed_at:", "if True:",
)  # fmt: skip
@mutation(
    "a round continues from a checkpoint of one that followed another", REQUESTS,
    "*([self.follows] if self.follows else [])", "",
)  # fmt: skip
@pytest.mark.slow
def test_a_round_that_was_stopped_continues_where_it_was(tmp_path: Path, policy: Path) -> None:
    kept = TrainerCheckpoints(folder=tmp_path / "kept", seconds=1e6)
    rows = random_rows(8, seed=6)
    second = rounds_of(tmp_path, rows, policy, batch_rows=2, learning_rate=1e-2)
    made = file_sha256(run_update(second).checkpoint / "model.safetensors")
    again = second.model_copy(update={"checkpoints": kept, "output": tmp_path / "again"})
    with pytest.raises(Stopped, match="after step 1 of 2"):
        run_update(again, lambda: True)
    other = sft_of(tmp_path, "other", rows[:4], policy, batch_rows=2, leaves=tmp_path / "otherwise")
    run_update(other)
    elsewhere = again.model_copy(update={"follows": other.leaves})
    assert request_digest(elsewhere) != request_digest(again)
    done = run_update(again)
    assert done.resumed_at == 1
    assert file_sha256(done.checkpoint / "model.safetensors") == made


@mutation(
    "rows of a warm start may be left over", BATCHES,
    "if left := frame.height % request.settings.batch_rows:",
    "if left := frame.height % 1:",
)  # fmt: skip
def test_rows_that_fill_no_whole_number_of_steps_are_refused(tmp_path: Path, policy: Path) -> None:
    request = sft_of(tmp_path, "out", random_rows(7), policy, batch_rows=4)
    with pytest.raises(TrainingError, match=r"7 fill no whole number of steps of 4 rows, 3 are"):
        run_update(request)
    rows = random_rows(4)
    rows[2]["completion_ids"] = []
    with pytest.raises(TrainingError, match=r"row_id 'r002': empty completion_ids"):
        run_update(sft_of(tmp_path, "empty", rows, policy, batch_rows=4))


def test_merged_adapters_are_a_whole_checkpoint_without_one(tmp_path: Path, policy: Path) -> None:
    training = TrainingConfig(lora=LoraConfig(rank=2, merge=True))
    request = sft_of(
        tmp_path, "out", random_rows(4), policy, policy=Policy.ENV, batch_rows=4,
        training=training, learning_rate=1e-2,
    )  # fmt: skip
    made = run_update(request).checkpoint
    assert request.what.startswith("warm start of pi_env from ")
    assert not (made / ADAPTER_WEIGHTS).exists()
    before, after = weights(policy), weights(made)
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)
