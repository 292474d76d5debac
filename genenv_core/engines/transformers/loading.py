"""Loads a causal language model from a checkpoint directory, or raises an error with the cause."""

from __future__ import annotations

import copy
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM
from transformers.modeling_layers import GradientCheckpointingLayer

from genenv_core.engines.adapters import base_of, merged
from genenv_core.errors import ModelError
from genenv_core.machine.freeing import trim
from genenv_core.machine.shortage import blame_machine

# While the library loads a model, it keeps all models of the process from tying their weights; two
# loads side by side leave it so for good.
_ALONE = threading.Lock()


def load_model(checkpoint: Path, *, dtype: torch.dtype | str) -> Any:
    """Return the causal language model in a directory; an adapter is added to its weights."""
    return merged(load_base(checkpoint, dtype=dtype), checkpoint)


def load_base(checkpoint: Path, *, dtype: torch.dtype | str) -> Any:
    """Return the model in a directory without its adapter: safetensors, and none of its own code.

    `dtype` "auto" keeps the stored type of the weights. Dropout is off, also in training: a ratio
    and a KL compare two deterministic distributions.
    Raises `ModelError` when a file is missing or unreadable, or weights are incomplete: the library
    would silently fill those with random numbers.
    """
    if not (checkpoint / "config.json").is_file():
        raise ModelError(
            f"checkpoint {checkpoint}: no config.json there; give a directory written by "
            "save_pretrained"
        )
    auto: Any = AutoModelForCausalLM
    try:
        with _ALONE, base_of(checkpoint) as base:
            model, report = auto.from_pretrained(
                base,
                dtype=dtype,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
    except ModelError:
        raise
    except Exception as error:  # the library raises OSError, ValueError, KeyError, safetensors' own
        blame_machine(error, f"checkpoint {checkpoint} was not loaded")
        raise ModelError(
            f"checkpoint {checkpoint} cannot be loaded: {type(error).__name__}: {error}; it must "
            "hold a causal language model that transformers knows, as safetensors"
        ) from error
    problems = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
    if problems:
        raise ModelError(
            f"checkpoint {checkpoint}: weights missing, or of another shape than config.json says: "
            f"{problems[:3]}; save it again"
        )
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        # Attention keeps its rate as a plain number, which the Dropout modules do not show; layers
        # of Falcon read it from the configuration, which is saved as it is.
        _end_dropout(module)
        if isinstance(module, GradientCheckpointingLayer) and "config" in vars(module):
            module.config = copy.copy(module.config)
            _end_dropout(module.config)
    return model


def _end_dropout(holder: Any) -> None:
    fields = cast("dict[str, Any]", vars(holder))
    for name, value in list(fields.items()):
        if name.endswith("dropout") and isinstance(value, float):
            setattr(holder, name, 0.0)


def give_back() -> None:
    """Free the memory of models that nothing holds any more, on a GPU too."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    trim()


@contextmanager
def torch_threads(threads: int) -> Generator[None]:
    """Return a context in which torch computes with this many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
