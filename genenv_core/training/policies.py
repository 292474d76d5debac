"""A policy in an update: loaded to be trained, and saved as the checkpoint that it becomes.

- Weights are trained in float32 whatever the checkpoint stores: an update of 1e-6 is lost in
  bfloat16 weights. The checkpoint that comes out is float32. With precision bfloat16 the matrix
  products are bfloat16, and weights that are not trained keep the type that they are stored in.
- Dropout is off: the ratio and the KL compare two deterministic distributions.
- A checkpoint is written beside its destination and renamed into place, so it is whole or absent.
"""

# torch, transformers and peft come without complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import copy
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from genenv_core.config.training import TrainingConfig
from genenv_core.engines.adapters import merged
from genenv_core.engines.loading import load_base
from genenv_core.errors import ModelError, NumericalError, TrainingError
from genenv_core.training import ranks
from genenv_core.training.kernels import Kernels, use_kernels
from genenv_core.training.lora import add_adapter, add_base, save_adapter
from genenv_core.training.shards import Tensors, trained, whole


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A checkpoint in memory: model and tokenizer, typed loosely as their library is untyped.

    `config`, `generation` and `pad_token` are as the checkpoint has them: TRL and the loop align
    the live objects with each other, and a training run must not rename anybody's pad token.
    """

    model: Any
    tokenizer: Any
    source: Path
    training: TrainingConfig
    kernels: Kernels
    config: Any
    generation: Any
    pad_token: str | None

    @property
    def told(self) -> dict[str, float]:
        """What an update's metrics say of how it was computed: on a GPU, whether with Liger."""
        gpu = self.training.device == "cuda"
        return {"liger_kernels": float(self.kernels == "liger")} if gpu else {}

    def save(self, trained_model: Any, output: Path, work: Path) -> None:
        """Write a complete checkpoint (safetensors, configs, tokenizer) to `output`.

        Every process calls it, because each may hold a part of the weights; the first one writes.
        """
        if self.training.strategy == "zero3":
            # Else the first process alone would load a model that is cut among all, and wait for
            # them for ever.
            unset_hf_deepspeed_config()
        weights: Tensors = {}
        for name, parameter in trained(trained_model).items():
            weight = self._whole(parameter)
            if not bool(torch.isfinite(weight).all()):
                raise NumericalError(
                    f"weight {name} is not finite after the update of {self.source}"
                )
            if ranks.first():
                weights[name] = weight.cpu()
        if ranks.first():
            staged = work / "checkpoint"
            self._write(weights, staged, work)
            if output.exists():
                shutil.rmtree(output)
            os.replace(staged, output)
        ranks.wait()

    def _whole(self, parameter: torch.Tensor) -> torch.Tensor:
        if self.training.strategy != "zero3":
            return whole(parameter.detach())
        # DeepSpeed's own parameter is bfloat16 and in pieces; its optimizer has the float32 ones.
        from deepspeed.utils import (  # pyright: ignore[reportMissingImports]
            safe_get_full_fp32_param,
        )

        return safe_get_full_fp32_param(parameter)

    def _write(self, weights: Tensors, staged: Path, work: Path) -> None:
        lora = self.training.lora
        if lora.rank and not lora.merge:
            add_base(self.source, staged)
            save_adapter(self.model, weights, staged)
            return
        model: Any = self.model
        if lora.rank:
            save_adapter(model, weights, work / "adapter")
            model = merged(load_model(self.source), work / "adapter")
        elif self.training.sharded:
            model = load_model(self.source)
            left = {name for name, _ in model.named_parameters()} ^ weights.keys()
            if left:
                raise TrainingError(f"weights got lost between the processes: {sorted(left)[:3]}")
            model.load_state_dict(weights, strict=False)  # tied weights have one name here
        model.config = self.config
        model.generation_config = self.generation
        self.tokenizer.pad_token = self.pad_token
        model.save_pretrained(staged)
        self.tokenizer.save_pretrained(staged)


def load_model(checkpoint: Path, *, dtype: torch.dtype | str = torch.float32) -> Any:
    """Return the model of a checkpoint directory, adapters merged; `ModelError` without one."""
    return merged(_load_base(checkpoint, dtype), checkpoint)


def _load_base(checkpoint: Path, dtype: torch.dtype | str) -> Any:
    """Return the model of a checkpoint directory without its adapter and without dropout."""
    model = load_base(checkpoint, dtype=dtype)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        # Attention keeps its rate as a plain number, which the Dropout modules do not show.
        rates = [name for name, value in vars(module).items() if _is_dropout_rate(name, value)]
        for name in rates:
            setattr(module, name, 0.0)
    return model


def frozen_dtype(training: TrainingConfig) -> torch.dtype | str:
    """Return the type of weights that are not trained: float32, or as they are stored."""
    return "auto" if training.precision == "bfloat16" else torch.float32


def _is_dropout_rate(name: str, value: object) -> bool:
    return name.endswith("dropout") and isinstance(value, float)


def load_policy(checkpoint: Path, training: TrainingConfig) -> LoadedPolicy:
    """Return the model and tokenizer of a checkpoint directory; `ModelError` when there is none."""
    lora = training.lora
    if lora.rank:
        model = _load_base(checkpoint, frozen_dtype(training))
        model = merged(model, checkpoint) if lora.merge else model
    else:
        model = load_model(checkpoint).requires_grad_(True)  # which merging an adapter takes away
    kernels = use_kernels(model, training)
    # What the checkpoint says, before the library's trainers change the live objects.
    config, generation = copy.deepcopy(model.config), copy.deepcopy(model.generation_config)
    if lora.rank:
        model = add_adapter(model, checkpoint, lora)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            checkpoint, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise ModelError(f"tokenizer of {checkpoint} cannot be loaded: {error}") from error
    return LoadedPolicy(
        model, tokenizer, checkpoint, training, kernels, config, generation, tokenizer.pad_token
    )
