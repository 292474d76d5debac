"""The first policy of a run as the reference of a KL term: loaded frozen, or the policy itself."""

# torch, transformers and trl come without complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

from pathlib import Path
from typing import Any

from accelerate.utils import DistributedType
from trl.models.utils import prepare_deepspeed, prepare_fsdp

from genenv_core.engines.adapters import has_adapter
from genenv_core.engines.transformers.loading import load_model
from genenv_core.errors import TrainingError
from genenv_core.training.policies.lora import same_base
from genenv_core.training.policies.weights import LoadedPolicy, frozen_dtype
from genenv_core.types import Policy


def load_reference(initial: Path, policy: LoadedPolicy, who: Policy) -> Any:
    """Return the model of `initial`, the first checkpoint of the policy in training.

    None where the policy is that checkpoint with an adapter: without the adapter it is the
    reference. Raises `TrainingError` where the two have vocabularies of unequal sizes.
    """
    lora = policy.training.lora
    if lora.rank and not has_adapter(initial):
        merging = lora.merge and has_adapter(policy.source)
        if not merging and same_base(policy.source, initial):
            return None
    reference = load_model(initial, dtype=frozen_dtype(policy.training))
    size, other = policy.vocabulary, reference.get_input_embeddings().num_embeddings
    if other != size:
        raise TrainingError(
            f"pi_{who.value} has a vocabulary of {size} and its initial {initial} of {other}"
        )
    return reference


def frozen(model: Any, accelerator: Any) -> Any:
    """Return a model on this process's device that no update trains; FSDP and ZeRO-3 shard it.

    It computes under `accelerator.autocast()`, as the policy does.
    """
    model = model.eval().requires_grad_(False)
    if accelerator.is_fsdp2:
        return prepare_fsdp(model, accelerator)
    if accelerator.distributed_type == DistributedType.DEEPSPEED:
        return prepare_deepspeed(model, accelerator)
    return model.to(accelerator.device)
