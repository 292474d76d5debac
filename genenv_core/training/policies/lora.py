"""LoRA in an update: the trained adapter, and the checkpoint that it becomes.

Without `merge` every epoch trains the same adapter on the weights of the first checkpoint, which
stay unchanged. With `merge` every epoch trains a new adapter on the weights of the epoch before,
and merges it into them in float32.
"""

# peft and transformers have partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from peft import LoraConfig as PeftLora
from peft import PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file

from genenv_core.canonical import file_sha256
from genenv_core.config.sections.training import LoraConfig
from genenv_core.engines.adapters import (
    ADAPTER_CONFIG,
    ADAPTER_FILES,
    ADAPTER_WEIGHTS,
    check_settings,
    has_adapter,
    with_adapter,
)
from genenv_core.storage.files import link_or_copy
from genenv_core.training.policies.shards import Tensors

NAME = "default"
"""peft's name for the trained adapter."""


def add_adapter(model: Any, checkpoint: Path, settings: LoraConfig) -> Any:
    """Return the model with the adapter to train: the checkpoint's, or a new one.

    A new one draws its weights from torch's random state, which all processes of an update share.
    """
    if has_adapter(checkpoint) and not settings.merge:
        check_settings(checkpoint, settings)
        return with_adapter(model, checkpoint, trainable=True)
    lora = PeftLora(
        r=settings.rank,
        lora_alpha=settings.alpha,  # pyright: ignore[reportArgumentType]
        lora_dropout=0.0,
        bias="none",
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, lora)


def save_adapter(model: PeftModel, weights: Tensors, folder: Path) -> None:
    """Write the adapter with these weights into `folder`."""
    folder.mkdir(exist_ok=True)
    tensors = get_peft_model_state_dict(model, state_dict=weights, adapter_name=NAME)
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / ADAPTER_WEIGHTS)
    # Sorted, and without the path of a base that lies beside it: equal adapters are equal files.
    config = model.peft_config[NAME].to_dict() | {"base_model_name_or_path": None}
    config["inference_mode"] = True
    text = json.dumps(config, indent=1, sort_keys=True, default=_plain)
    (folder / ADAPTER_CONFIG).write_text(f"{text}\n", encoding="utf-8")


def add_base(base: Path, folder: Path) -> None:
    """Copy the files of a checkpoint into `folder`, all but its adapter."""
    folder.mkdir(exist_ok=True)
    for path in sorted(base.iterdir()):
        if path.is_file() and path.name not in ADAPTER_FILES:
            link_or_copy(path, folder / path.name)


def same_base(checkpoint: Path, other: Path) -> bool:
    """Return whether two checkpoints have the same weights under their adapters."""
    ours, theirs = (
        {p.name: p for p in folder.glob("*.safetensors") if p.name != ADAPTER_WEIGHTS}
        for folder in (checkpoint, other)
    )
    return ours.keys() == theirs.keys() and all(
        path.samefile(theirs[name]) or file_sha256(path) == file_sha256(theirs[name])
        for name, path in ours.items()
    )


def _plain(value: object) -> Any:
    return sorted(value) if isinstance(value, set) else str(value)
