"""A policy in an update: how genenv loads it to train it, and saves the resulting checkpoint.

- genenv trains weights in float32, whatever the checkpoint stores: an update of 1e-6 is lost in
  bfloat16 weights. The new checkpoint is float32. With precision bfloat16 the matrix products are
  bfloat16, and untrained weights keep their stored type.
- It writes a checkpoint beside its destination and renames it into place, so the checkpoint is
  whole or absent.
"""

# torch, transformers and peft come without complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import copy
import os
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from weakref import ref

import torch
from transformers.integrations.deepspeed import unset_hf_deepspeed_config
from transformers.modeling_layers import GradientCheckpointingLayer

from genenv_core.config.sections.training import TrainingConfig
from genenv_core.engines.adapters import merged
from genenv_core.engines.tokenizers import load_tokenizer
from genenv_core.engines.transformers.loading import load_base, load_model
from genenv_core.errors import NumericalError, TrainingError
from genenv_core.training.policies import ranks
from genenv_core.training.policies.kernels import Kernels, use_kernels
from genenv_core.training.policies.lora import add_adapter, add_base, save_adapter
from genenv_core.training.policies.shards import Tensors, trained, whole


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A checkpoint in memory: model and tokenizer, typed loosely as their library has no types.

    `config`, `generation` and `pad_token` are the checkpoint's own values: TRL and the loop change
    those of the live objects, and training must not rename a pad token.
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
    def metrics(self) -> dict[str, float]:
        """Return metrics of how the update computes: on a GPU, whether with Liger."""
        gpu = self.training.on_gpus
        return {"liger_kernels": float(self.kernels == "liger")} if gpu else {}

    @property
    def vocabulary(self) -> int:
        """Return the number of tokens for which the model has an embedding."""
        return self.model.get_input_embeddings().num_embeddings

    def save(self, trained_model: Any, output: Path, work: Path) -> None:
        """Write a complete checkpoint (safetensors, configs, tokenizer) to `output`.

        Every process calls it, because each may hold a part of the weights; the first one writes.
        Raises NumericalError for a weight that is not finite.
        """
        if self.training.strategy == "zero3":
            # Else the first process alone would load a model that is sharded over all, and wait
            # for them for ever.
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
            model = merged(load_model(self.source, dtype=torch.float32), work / "adapter")
        elif self.training.sharded:
            model = load_model(self.source, dtype=torch.float32)
            left = {name for name, _ in model.named_parameters()} ^ weights.keys()
            if left:
                raise TrainingError(f"weights got lost between the processes: {sorted(left)[:3]}")
            model.load_state_dict(weights, strict=False)  # tied weights have one name here
        model.config = self.config
        model.generation_config = self.generation
        self.tokenizer.pad_token = self.pad_token
        model.save_pretrained(staged)
        self.tokenizer.save_pretrained(staged)


def frozen_dtype(training: TrainingConfig) -> torch.dtype | str:
    """Return the type of untrained weights: float32, or the stored type."""
    return "auto" if training.precision == "bfloat16" else torch.float32


def load_policy(checkpoint: Path, training: TrainingConfig) -> LoadedPolicy:
    """Return the model and tokenizer of a checkpoint directory; `ModelError` without them."""
    lora = training.lora
    if lora.rank:
        model = load_base(checkpoint, dtype=frozen_dtype(training))
        model = merged(model, checkpoint) if lora.merge else model
    else:
        model = load_model(checkpoint, dtype=torch.float32)
        model.requires_grad_(True)  # which merging an adapter takes away
    kernels = use_kernels(model, training)
    # The checkpoint's own values, before the library's trainers change the live objects.
    config, generation = copy.deepcopy(model.config), copy.deepcopy(model.generation_config)
    if lora.rank:
        model = add_adapter(model, checkpoint, lora)
    model.train = partial(_train, ref(model))
    tokenizer = load_tokenizer(checkpoint)
    pad = tokenizer.pad_token
    if pad and tokenizer.pad_token_id >= model.get_input_embeddings().num_embeddings:
        tokenizer.pad_token = tokenizer.eos_token  # was added to the tokenizer, not to the model
    return LoadedPolicy(model, tokenizer, checkpoint, training, kernels, config, generation, pad)


def _train(model: ref[Any], mode: bool = True) -> Any:
    """Let a model be trained as it is sampled from: its parts stay in evaluation.

    In training, models do more than dropout: they skip layers, shake the inputs of a router, draw
    experts. TRL's loss reads the mode of the whole model, and layers under gradient checkpointing
    their own.
    """
    policy = model()
    assert policy is not None  # it is what calls this
    for part in policy.modules():
        layer = isinstance(part, GradientCheckpointingLayer) and part.gradient_checkpointing
        part.training = mode and (layer or part is policy)
    return policy
