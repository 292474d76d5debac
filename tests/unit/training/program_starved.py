"""`training.processes.program` where one process runs out of memory at a given step.

`GENENV_STARVED` is "STEP:ROWS": in the last process of an update, a micro-batch of more than ROWS
rows does not fit from optimizer step STEP (from 0) on.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from genenv_core.config.sections.training import TrainingConfig
from genenv_core.training.grpo.trainer import StoredRolloutTrainer
from genenv_core.training.policies import ranks
from genenv_core.training.processes.program import main
from genenv_core.training.rwr.trainer import WeightedRegressionTrainer


def _starve() -> None:
    step, rows = map(int, os.environ["GENENV_STARVED"].split(":"))
    for kind, name in (
        (StoredRolloutTrainer, "_compute_loss"),
        (WeightedRegressionTrainer, "_terms"),
    ):
        original = getattr(kind, name)

        def hungry(self: Any, model: Any, inputs: Any, _original: Any = original) -> Any:
            held = len(inputs["lengths" if "lengths" in inputs else "completion_ids"])
            last = ranks.index() == ranks.count() - 1
            if last and torch.is_grad_enabled() and held > rows and self.state.global_step >= step:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return _original(self, model, inputs)

        setattr(kind, name, hungry)


if __name__ == "__main__":
    setattr(TrainingConfig, "yields", property(lambda _: True))  # noqa: B010  # as on a GPU
    _starve()
    main("tests.unit.training.program_starved")
