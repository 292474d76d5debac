"""How the two updates are computed: device, processes, sharding, precision, LoRA."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from genenv_core.config.sections.compute import Device
from genenv_core.config.sections.section import Section

Precision = Literal["float32", "bfloat16"]


class LoraConfig(Section):
    """Low-rank adapters (arXiv 2106.09685) in place of all weights."""

    rank: int = Field(default=0, ge=0, le=1024)
    """Rank of the adapters on all linear layers; 0: updates train all weights."""
    alpha: float = Field(default=32.0, gt=0, le=10_000)
    """The adapters' product counts alpha / rank."""
    merge: bool = False
    """Whether an update hands on whole merged weights. Else the first checkpoint stays as it is,
    and every update trains the same adapter further: a checkpoint adds only the adapter."""


class TrainingConfig(Section):
    """How both updates are computed. All of it changes results, if only in their last bits, so all
    of it is in their stage keys; docs/training.md lists what the device decides."""

    device: Device = "cpu"
    """Where updates are computed: on CPUs or on GPUs."""
    processes: int = Field(default=1, ge=1, le=64)
    """Processes of one update, on one machine; with cuda, one a GPU. They share the rows of a step,
    whose loss is that of a single process."""
    strategy: Literal["ddp", "fsdp2", "zero3"] = "ddp"
    """What several processes share: ddp gradients alone; fsdp2 (PyTorch) and zero3 (DeepSpeed)
    weights, gradients and optimizer. With zero3, pi_env's update takes fsdp2."""
    precision: Precision = "float32"
    """Arithmetic of matrix products. Trained weights, gradients and optimizer stay in float32."""
    kernels: Literal["auto", "torch", "liger"] = "auto"
    """Kernels of norms, rotary embedding and MLP: torch's, or those of the package liger-kernel.
    auto: Liger's on a GPU, where the package is installed and knows the model; else torch's."""
    memory_gb: float | None = Field(default=None, gt=0, le=10_000)
    """Memory of one device (GB = 1e9 bytes) that an update may fill; None: all that a GPU has, and
    on CPUs no limit. The update lowers micro_batch_rows to what fits."""
    rows: Literal["padded", "shared"] = "padded"
    """How an update computes the rows of a micro-batch. padded: each whole. shared: once what
    several rows begin with, such as the prompt of a group's attempts, which changes rounding alone.
    It pays where rows are short, or share more than they differ in: attention is over all tokens
    of a micro-batch. It needs full attention, and no zero3."""
    lora: LoraConfig = Field(default_factory=lambda: LoraConfig())
    """Adapters in place of all weights."""

    @property
    def shares_rows(self) -> bool:
        """Whether a micro-batch computes once what several of its rows begin with."""
        return self.rows == "shared"

    @property
    def own_processes(self) -> bool:
        """Whether an update has processes of its own, which `accelerate launch` starts."""
        return self.processes > 1

    @property
    def on_gpus(self) -> bool:
        """Whether updates are computed on GPUs: one at a time, each takes them whole."""
        return self.device == "cuda"

    @property
    def one_process_on_cpus(self) -> bool:
        """Whether one process on CPUs computes an update."""
        return not (self.own_processes or self.on_gpus)

    @property
    def yields(self) -> bool:
        """Whether an update that runs out of memory continues with smaller micro-batches. On CPUs
        it does not: there a result is equal to the bit only with the configured size."""
        return self.on_gpus

    @property
    def sharded(self) -> bool:
        """Whether weights, gradients and optimizer are divided among the processes."""
        return self.strategy != "ddp"

    @model_validator(mode="after")
    def _useful(self) -> Self:
        if self.sharded and self.processes == 1:
            raise ValueError(
                f"training.strategy {self.strategy} does nothing with training.processes 1: set "
                "2 or more, or training.strategy=ddp"
            )
        if self.sharded and self.device == "cpu":
            raise ValueError(
                f"training.strategy {self.strategy} needs training.device cuda: accelerate shards "
                "on GPUs only; use ddp on CPUs"
            )
        if self.strategy == "zero3" and self.shares_rows:
            raise ValueError(
                "training.rows shared was not tried with training.strategy zero3: "
                "set training.rows=padded, or training.strategy=fsdp2"
            )
        if self.kernels == "liger" and self.device == "cpu":
            raise ValueError(
                "training.kernels liger needs training.device cuda: its kernels are for GPUs"
            )
        given = self.lora.model_fields_set - {"rank"}
        if self.lora.rank == 0 and any(
            getattr(self.lora, name) != type(self.lora).model_fields[name].default for name in given
        ):
            raise ValueError(
                f"training.lora.{sorted(given)[0]} does nothing with training.lora.rank 0: set a "
                "rank or remove it"
            )
        return self
