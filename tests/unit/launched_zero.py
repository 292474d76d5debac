"""`launched_cases` under DeepSpeed's ZeRO-3 with gloo on CPUs, which accelerate alone refuses.

DeepSpeed has an accelerator for CPUs (DS_ACCELERATOR=cpu). accelerate takes DeepSpeed only where
the Trainer is not told to use the CPU; told nothing of it, it finds no GPU and computes on the CPU.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState

from genenv_core.training import grpo_trainer
from genenv_core.training.shards import trained
from tests.unit import launched_cases

_taken: dict[str, torch.Tensor] = {}
_shared_arguments = grpo_trainer.shared_arguments


def _unasked(*args: Any) -> Any:
    return _shared_arguments(*args) | {"use_cpu": False}


def _take_gradients() -> None:
    """Keep the gradients of each step: DeepSpeed's own step, which takes them, comes first."""
    from deepspeed.runtime.engine import (  # pyright: ignore[reportMissingImports]
        DeepSpeedEngine,
    )
    from deepspeed.utils import safe_get_full_grad  # pyright: ignore[reportMissingImports]

    original = DeepSpeedEngine.step

    def step(self: Any, *args: Any, **options: Any) -> Any:
        for name, parameter in trained(self.module).items():
            _taken[name] = safe_get_full_grad(parameter).detach().float().cpu().clone()
        return original(self, *args, **options)

    DeepSpeedEngine.step = step
    launched_cases.gradients = lambda _: dict(_taken)


def main() -> None:
    """Compute all requests of the folder, sharded by DeepSpeed."""
    PartialState(backend="gloo")
    grpo_trainer.shared_arguments = _unasked
    _take_gradients()
    launched_cases.compute_all(Path(sys.argv[1]), strategy="zero3")


if __name__ == "__main__":
    main()
