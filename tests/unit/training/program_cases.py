"""Updates with recorded gradients, in this process or in each process of a launch.

`accelerate launch -m tests.unit.training.program_cases FOLDER` computes every `*.request.json` of a
folder in several processes; `compute` does it in one. Both leave `NAME.gradients.safetensors`,
those of each step right before the optimizer, and `NAME.result.json`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from safetensors.torch import save_file

from genenv_core.errors import Stopped
from genenv_core.training.grpo import trainer as grpo
from genenv_core.training.policies import ranks
from genenv_core.training.policies.shards import trained, whole
from genenv_core.training.rwr import trainer as rwr
from genenv_core.training.updates.grpo import GrpoRequest
from genenv_core.training.updates.rwr import RwrRequest
from genenv_core.training.updates.table import run_update

Request = GrpoRequest | RwrRequest


def gradients(model: Any) -> dict[str, torch.Tensor]:
    """Return the gradient of each trained weight before clipping."""
    named = trained(model).items()
    return {key: whole(p.grad).detach().cpu().clone() for key, p in named}


def compute(
    request: Request, folder: Path, name: str, stop: Callable[[], bool] = lambda: False
) -> None:
    """Compute an update; write its gradients and result into `folder`."""
    steps: dict[str, Any] = {}
    number = 0
    classes = (grpo.StoredRolloutTrainer, rwr.WeightedRegressionTrainer)
    originals = [kind._get_grad_norm for kind in classes]

    def recording(original: Any) -> Any:
        def record(self: Any, model: Any, grad_norm: Any = None) -> float:
            nonlocal number
            for key, gradient in gradients(self.model).items():
                steps[f"{number}/{key}"] = gradient
            number += 1
            return original(self, model, grad_norm)

        return record

    for kind, original in zip(classes, originals, strict=True):
        kind._get_grad_norm = recording(original)
    try:
        result = run_update(request, stop)
    finally:
        for kind, original in zip(classes, originals, strict=True):
            kind._get_grad_norm = original
    if ranks.first():
        save_file(steps, folder / f"{name}.gradients.safetensors")
        (folder / f"{name}.result.json").write_text(result.model_dump_json())


def compute_all(folder: Path, *, backwards: bool = False, **training: Any) -> None:
    """Compute every request of a folder; one with trainer checkpoints is stopped and resumed."""
    for path in sorted(folder.glob("*.request.json"), reverse=backwards):
        text, name = path.read_text(), path.name.removesuffix(".request.json")
        kind = RwrRequest if '"initial"' in text else GrpoRequest
        request = kind.model_validate_json(text)
        changed = request.training.model_copy(update=training)
        request = request.model_copy(update={"training": changed})
        if request.checkpoints:
            with contextlib.suppress(Stopped):
                compute(request, folder, name, lambda: True)
        compute(request, folder, name)


def main() -> None:
    """Compute all requests of the folder in turn, together with the other processes."""
    PartialState(cpu=True, backend="gloo")
    compute_all(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
