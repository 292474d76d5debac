"""The kernels of norms, rotary embedding and MLP: torch's, or those of liger-kernel.

Liger replaces the methods of the model and the classes of its architecture. So a reference loaded
later has the same kernels, and policy and reference differ by weights alone. An update with Liger
has a process of its own (training.device cuda), so nothing of it stays behind. The update applies
Liger before it adds adapters and shards weights: Liger's methods call the linear layers, adapted or
not, and FSDP does not shard norms and MLPs as units of their own.

Liger's losses stay off: TRL has a head of its own for GRPO, and RWR needs every logprob.
"""

# liger-kernel comes without types, and is not installed where the code is checked.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingImports=false

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Literal

from genenv_core.config.sections.training import TrainingConfig
from genenv_core.errors import TrainingError

log = logging.getLogger("genenv.training")

Kernels = Literal["torch", "liger"]


def use_kernels(model: Any, training: TrainingConfig) -> Kernels:
    """Put the configured kernels into a model, and return which it has now.

    `auto` takes Liger's on a GPU where the package is installed, loads and knows the architecture.
    With `liger`, each of these three that fails is a `TrainingError`.
    """
    wanted = training.kernels
    if wanted == "torch" or training.device != "cuda":
        return "torch"
    if wanted == "auto" and find_spec("liger_kernel") is None:
        log.info("kernels=torch device=cuda: liger-kernel is not installed")
        return "torch"
    try:
        apply = _liger_for(str(model.config.model_type))
        apply(model=model, cross_entropy=False, fused_linear_cross_entropy=False)
    except (ImportError, TrainingError) as error:
        if wanted == "auto":
            log.warning("kernels=torch device=cuda: %s", error)
            return "torch"
        raise TrainingError(
            f"training.kernels is liger and cannot be used: {error}; set training.kernels=torch"
        ) from error
    log.info("kernels=liger device=cuda liger_kernel=%s", version("liger-kernel"))
    return "liger"


def _liger_for(architecture: str) -> Callable[..., None]:
    """Return the function that puts Liger's kernels into a model; `TrainingError` without one.

    Liger itself does nothing for an architecture that it does not know, and gives no sign of it.
    """
    from liger_kernel.transformers import _apply_liger_kernel_to_instance
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    if architecture not in MODEL_TYPE_TO_APPLY_LIGER_FN:
        raise TrainingError(f"liger-kernel has no kernels for models of type {architecture!r}")
    return _apply_liger_kernel_to_instance
