"""The kinds of updates by their losses, and how one is carried out in this process."""

from __future__ import annotations

from collections.abc import Callable

from genenv_core.importing import load
from genenv_core.training.requests import LossName, UpdateRequest, UpdateResult
from genenv_core.training.updates import grpo, own, rwr, warm_start
from genenv_core.training.updates.kind import UpdateKind

UPDATES: dict[LossName, UpdateKind] = {
    "grpo": grpo.UPDATE,
    "rwr": rwr.UPDATE,
    "warm_start": warm_start.UPDATE,
    "own": own.UPDATE,
}


def run_update(request: UpdateRequest, stop: Callable[[], bool] = lambda: False) -> UpdateResult:
    """Return what an update did, computed in this process; the policy is in `request.output`.

    `stop` is called after each optimizer step; True ends the update. On CPUs, updates are
    deterministic under seed and thread count. A process computes one at a time. Raises
    `TrainingError` when it cannot compute, `NumericalError` on NaN or inf, and `Stopped`.
    """
    return load(UPDATES[request.loss].trainer).update(request, stop)
