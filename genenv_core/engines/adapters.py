"""Checkpoints with a LoRA adapter: the files of their base, untouched, and the adapter beside them.

Such a checkpoint is complete in itself. The store names files by their content, so the base is
stored once however many checkpoints lie beside it, and each of them adds only its adapter.
"""

# peft has partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from genenv_core.config.sections.training import LoraConfig
from genenv_core.errors import ModelError, one_line
from genenv_core.machine.json_files import checkpoint_file
from genenv_core.machine.shortage import blame_machine

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
ADAPTER_FILES = (ADAPTER_CONFIG, ADAPTER_WEIGHTS)


def has_adapter(checkpoint: Path) -> bool:
    """Return whether a checkpoint has an adapter; `ModelError` when one of its files is missing."""
    found = [name for name in ADAPTER_FILES if (checkpoint / name).is_file()]
    if len(found) == 1:
        lost = next(name for name in ADAPTER_FILES if name not in found)
        raise ModelError(f"checkpoint {checkpoint}: {found[0]} without {lost}: save it again")
    return bool(found)


def check_settings(checkpoint: Path, settings: LoraConfig) -> None:
    """Raise `ModelError` where an update would train another adapter than a checkpoint has."""
    if not settings.rank or settings.merge or not has_adapter(checkpoint):
        return
    stored = checkpoint_file(checkpoint, ADAPTER_CONFIG) or {}
    rank, alpha = stored.get("r", 0), stored.get("lora_alpha", 0)  # other kinds have none
    if (rank, alpha) != (settings.rank, settings.alpha):
        raise ModelError(
            f"the adapter of {checkpoint} has rank {rank} and alpha {alpha:g}, and training.lora "
            f"says rank {settings.rank} and alpha {settings.alpha:g}: set these to the adapter's, "
            "or training.lora.merge=true"
        )


@contextmanager
def base_of(checkpoint: Path) -> Generator[Path]:
    """Yield a folder of the checkpoint without its adapter's files.

    With these, transformers would look for the base where the adapter's configuration says.
    """
    if not has_adapter(checkpoint):
        yield checkpoint
        return
    with tempfile.TemporaryDirectory(prefix="genenv-base-") as name:
        folder = Path(name)
        for path in checkpoint.iterdir():
            if path.name not in ADAPTER_FILES:
                (folder / path.name).symlink_to(path.resolve())
        yield folder


def with_adapter(model: Any, checkpoint: Path, *, trainable: bool = False) -> Any:
    """Return the model with the checkpoint's adapter on it.

    Raises ModelError for an adapter that is missing, unreadable, or does not fit the model.
    """
    from peft import PeftModel

    try:
        with warnings.catch_warnings():  # peft uses names that transformers 6 drops
            warnings.simplefilter("ignore", FutureWarning)
            return PeftModel.from_pretrained(
                model, str(checkpoint), is_trainable=trainable, local_files_only=True
            )
    except Exception as error:  # peft's own, safetensors', torch's for other shapes
        blame_machine(error, f"the adapter of checkpoint {checkpoint} was not loaded")
        raise ModelError(
            f"checkpoint {checkpoint}: its adapter cannot be loaded: {type(error).__name__}: "
            f"{one_line(error, 200)}; it must fit the weights beside it"
        ) from error


def merged(model: Any, checkpoint: Path) -> Any:
    """Return the model with the checkpoint's adapter added to its weights, if it has one."""
    if not has_adapter(checkpoint):
        return model
    return with_adapter(model, checkpoint).merge_and_unload()
