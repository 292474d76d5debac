"""`program_cases` under DeepSpeed's ZeRO-3 with gloo on CPUs, which accelerate alone refuses.

DeepSpeed has an accelerator for CPUs (DS_ACCELERATOR=cpu). accelerate takes DeepSpeed only when the
Trainer's use_cpu is off; the Trainer then finds no GPU and computes on the CPU.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState

from genenv_core.training.grpo import trainer as grpo_trainer
from genenv_core.training.policies.shards import trained
from tests.unit.training import program_cases

_taken: dict[str, torch.Tensor] = {}
_shared_arguments = grpo_trainer.shared_arguments


def _unasked(*args: Any) -> Any:
    return _shared_arguments(*args) | {"use_cpu": False}


def _take_gradients() -> None:
    """Record the gradients of each step before DeepSpeed's own step consumes them."""
    from deepspeed.runtime.engine import (  # pyright: ignore[reportMissingImports]
        DeepSpeedEngine,
    )
    from deepspeed.utils import safe_get_full_grad  # pyright: ignore[reportMissingImports]

    original = DeepSpeedEngine.step

    def step(self: Any, *args: Any, **options: Any) -> Any:
        _taken.clear()
        for name, parameter in trained(self.module).items():
            _taken[name] = safe_get_full_grad(parameter).detach().float().cpu().clone()
        return original(self, *args, **options)

    DeepSpeedEngine.step = step
    program_cases.gradients = lambda _: dict(_taken)


def _each_with_deepspeed() -> None:
    """Turn DeepSpeed on again for each update, because the Trainer turns it off after the first.

    Outside of these tests a process computes only one update.
    """
    original = program_cases.compute

    def compute(*args: Any) -> None:
        os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
        original(*args)

    program_cases.compute = compute


def main() -> None:
    """Compute all requests of the folder, sharded by DeepSpeed."""
    PartialState(backend="gloo")
    _each_with_deepspeed()
    grpo_trainer.shared_arguments = _unasked
    _take_gradients()
    program_cases.compute_all(Path(sys.argv[1]), strategy="zero3")


if __name__ == "__main__":
    main()
