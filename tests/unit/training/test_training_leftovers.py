"""What an update leaves behind in the process that computed it.

Invariants: the memory of a process does not grow with the number of its updates, of either loss,
with a reference, and with updates that fail.
"""

from __future__ import annotations

import gc
from pathlib import Path

import psutil
import pytest
import torch

from genenv_core.errors import TrainingError
from genenv_core.training.rwr import trainer as rwr
from genenv_core.training.updates.table import run_update
from tests.mutations import mutation
from tests.unit.training.builders_training import (
    MODEL_BYTES,
    grpo_of,
    grpo_rows,
    load,
    rwr_of,
    rwr_rows,
    weighty_checkpoint,
)

pytestmark = pytest.mark.slow

UPDATE = "genenv_core/training/loop/update.py"


def live_bytes() -> int:
    """Return the bytes of all tensors that Python's collector knows of, garbage included."""
    found: dict[int, int] = {}
    for one in gc.get_objects():
        if type(one) in (torch.Tensor, torch.nn.Parameter):
            storage = one.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return weighty_checkpoint(tmp_path_factory.mktemp("left") / "policy")


@mutation("an update stays in memory", UPDATE, "    gc.collect()\n", "")
def test_twenty_updates_leave_no_tensor_behind(tmp_path: Path, policy: Path) -> None:
    """Takes some seconds: memory that grows with the number of updates needs some updates."""
    rows = grpo_rows(1, 4, sampler=load(policy))
    requests = [
        grpo_of(tmp_path, "grpo", rows, policy, kl_coef=0.05),
        rwr_of(tmp_path, "rwr", rwr_rows(4), policy, policy, steps=1, steps_per_row=100),
    ]
    before, resident = live_bytes(), list[int]()
    for number in range(20):
        run_update(requests[number % 2])
        resident.append(psutil.Process().memory_info().rss)
    assert live_bytes() - before < MODEL_BYTES
    # Kept, the last 14 updates would be 40 models.
    assert resident[-1] - resident[5] < 8 * MODEL_BYTES


@mutation("an update that fails stays in memory", UPDATE, "traceback.clear_frames(seen", "str(seen")
def test_an_update_that_fails_leaves_no_tensor_behind(
    tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> object:
        raise ValueError("a message of a library")

    request = rwr_of(tmp_path, "rwr", rwr_rows(4), policy, policy, steps=1, steps_per_row=100)
    monkeypatch.setattr(rwr.WeightedRegressionTrainer, "compute_loss", broken)
    before = live_bytes()
    with pytest.raises(TrainingError, match="a message of a library") as kept:
        run_update(request)
    assert live_bytes() - before < MODEL_BYTES, kept
