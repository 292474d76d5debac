"""What both updates share: a quiet, seeded session; loading and saving; the loop's plumbing.

Decisions taken here, for both trainers:

- Weights are trained in float32 whatever the checkpoint stores: an update of 1e-6 is lost in
  bfloat16 weights. The checkpoint that comes out is float32. With precision bfloat16 the matrix
  products are bfloat16, and weights that are not trained keep the type that they are stored in.
- Dropout is off: the ratio and the KL compare two deterministic distributions.
- A checkpoint is written beside its destination and renamed into place, so it is whole or absent.
- Batches come from a plan (`PlanDataset`) that says which rows each micro-batch holds, and never
  from counters inside the library, so a resumed loop that skips batches trains the right rows.
- Several processes take the plan's micro-batches in turn. What a step's loss is divided by comes
  from the plan too, over the rows of all processes; the loss of each is multiplied by their number,
  because DDP, FSDP and DeepSpeed average gradients where a sum is meant.
"""

# TRL, transformers and datasets come without complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import copy
import gc
import logging
import math
import os
import random
import shutil
import threading
import warnings
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # rollout_func is meant, no notice needed

import numpy as np
import torch
import transformers
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback
from transformers.utils import logging as hf_logging

from genenv_core.config.training import TrainingConfig
from genenv_core.engines.adapters import base_of, merged
from genenv_core.errors import GenenvError, ModelError, NumericalError, TrainingError
from genenv_core.training import ranks
from genenv_core.training.base import GrpoRequest, RwrRequest
from genenv_core.training.checkpoints import STATE, CheckpointKeeper
from genenv_core.training.lora import add_adapter, add_base, save_adapter
from genenv_core.training.memory import GB
from genenv_core.training.shards import (
    Tensors,
    load_tensors,
    optimizer_tensors,
    reshard,
    restore_optimizer,
    save_tensors,
    trained,
    whole,
)

_LIBRARIES = ("trl", "accelerate", "datasets", "transformers")
# Thread counts, random states and accelerate's singletons belong to the process: two updates in
# one process take turns.
_ONE_UPDATE = threading.RLock()


@contextmanager
def training_session(
    what: str, *, threads: int, seed: int, section: str, micro_batch_rows: int
) -> Generator[None]:
    """Return a context in which an update runs alone, seeded, silent and with `threads` threads.

    `what` opens the message of every foreign exception, which leaves as a `TrainingError`; when
    memory ran out, it names `micro_batch_rows` of the configuration's `section`. The process's own
    random states, thread count and log levels are as before afterwards.
    """
    with _ONE_UPDATE, ExitStack() as stack:
        stack.enter_context(_silence())
        stack.enter_context(torch.random.fork_rng(devices=range(torch.cuda.device_count())))
        stack.callback(random.setstate, random.getstate())
        stack.callback(np.random.set_state, np.random.get_state())
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        # The loop collects garbage when it starts; frozen, the process's own objects (a third of
        # a second after the imports) are not looked through each time.
        gc.freeze()
        stack.callback(gc.unfreeze)
        torch.set_num_threads(threads)
        transformers.set_seed(seed)
        try:
            yield
        except GenenvError:
            raise
        except Exception as error:
            text = " ".join(str(error).split())
            if not _is_out_of_memory(error, text):
                message = f"{what} failed: {type(error).__name__}: {text}; see the cause"
                raise TrainingError(message) from error
            setting = f"{section}.micro_batch_rows"
            remedy = (
                f"lower it, for example --set {setting}={micro_batch_rows // 2}"
                if micro_batch_rows > 1
                else "set execution.gradient_checkpointing=full or training.lora.rank, shard over "
                "more processes (training.strategy=fsdp2), or use shorter completions"
            )
            raise TrainingError(
                f"{what} ran out of memory with {setting} {micro_batch_rows}: {remedy} "
                f"({text[:200]})"
            ) from error


def _is_out_of_memory(error: Exception, text: str) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    # What torch raises on a CPU, and CUDA's libraries outside of torch's own allocator.
    signs = ("can't allocate memory", "out of memory", "ALLOC_FAILED")
    return isinstance(error, RuntimeError) and any(sign in text for sign in signs)


@contextmanager
def _silence() -> Generator[None]:
    loggers = [logging.getLogger(name) for name in _LIBRARIES]
    levels = [logger.level for logger in loggers]
    verbosity, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        hf_logging.set_verbosity(verbosity)
        if bars:
            hf_logging.enable_progress_bar()
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


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
    config: Any
    generation: Any
    pad_token: str | None

    def save(self, trained_model: Any, output: Path, work: Path) -> None:
        """Write a complete checkpoint (safetensors, configs, tokenizer) to `output`.

        Every process calls it, because each may hold a part of the weights; the first one writes.
        """
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
    """Return the model of a checkpoint directory without its adapter."""
    if not (checkpoint / "config.json").is_file():
        raise ModelError(f"{checkpoint} is no checkpoint directory: it has no config.json")
    try:
        with base_of(checkpoint) as base:
            model = AutoModelForCausalLM.from_pretrained(
                base,
                dtype=dtype,
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
            )
    except (OSError, ValueError) as error:
        raise ModelError(f"checkpoint {checkpoint} cannot be loaded: {error}") from error
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
    if training.kernels == "liger":
        _use_liger(model)
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
        model, tokenizer, checkpoint, training, config, generation, tokenizer.pad_token
    )


def _use_liger(model: Any) -> None:
    """Replace norms, rotary embedding and MLP by Liger's kernels; TRL has its own for the loss."""
    from liger_kernel.transformers import (  # pyright: ignore[reportMissingImports]
        _apply_liger_kernel_to_instance,
    )

    _apply_liger_kernel_to_instance(
        model=model, cross_entropy=False, fused_linear_cross_entropy=False
    )


@contextmanager
def workspace(output: Path, *inputs: Path) -> Generator[Path]:
    """Return a scratch folder beside `output`, gone afterwards; refuse to overwrite an input.

    The processes of an update share it; the first one makes and removes it.
    """
    for path in inputs:
        if path.resolve() == output.resolve():
            raise TrainingError(f"output {output} is also an input of the update: choose another")
    folder = output.parent / f".{output.name}.work"
    if ranks.first():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    ranks.wait()
    try:
        yield folder
    finally:
        if ranks.first():
            shutil.rmtree(folder, ignore_errors=True)


def device_memory(training: TrainingConfig) -> float | None:
    """Return the bytes of a device that the update may fill: the least of all its processes'."""
    limit = None if training.memory_gb is None else training.memory_gb * GB
    if training.device == "cpu":
        return limit
    need_gpu()
    free, _ = torch.cuda.mem_get_info()
    return min([limit or math.inf, *ranks.collected(float(free))])


def need_gpu() -> None:
    """Raise `TrainingError` where torch finds no GPU."""
    if not torch.cuda.is_available():
        raise TrainingError(
            "training.device is cuda and torch finds no GPU here: run the stage where there is one "
            "(placement.grpo_update, placement.rwr_update), or set training.device=cpu"
        )


def shared_arguments(home: Path, request: GrpoRequest | RwrRequest) -> Any:
    """Return the TrainingArguments that both updates share: constant rate, silent, no schedule of
    checkpoints (the keeper asks for them; they go to `home`)."""
    training = request.training
    return {
        "output_dir": str(home),
        "learning_rate": request.settings.learning_rate,
        "lr_scheduler_type": "constant",
        "max_grad_norm": request.settings.max_grad_norm,
        "weight_decay": 0.0,
        "seed": request.seed,
        "data_seed": request.seed,
        "bf16": training.precision == "bfloat16",
        "fp16": False,
        "gradient_checkpointing": request.gradient_checkpointing,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "use_cpu": training.device == "cpu",
        "ddp_backend": "gloo" if training.device == "cpu" and training.processes > 1 else None,
        "ddp_find_unused_parameters": False,
        "dataloader_pin_memory": False,
        "remove_unused_columns": False,
        "logging_strategy": "no",
        "save_strategy": "no",
        "eval_strategy": "no",
        "report_to": "none",
        "push_to_hub": False,
        "disable_tqdm": True,
    }


class PlanDataset(Dataset[Any]):
    """The micro-batches of one pass, in order; `set_epoch` may plan another pass."""

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Any:
        return self.batches[index]


class PlannedTrainer:
    """Mixin for TRL trainers: batches from a plan, no telemetry, gradients checked each step, and
    checkpoints that are safetensors.

    It is a `checkpoints.Resumable`: what a subclass counts for its result, it adds to `counters`
    and takes back in `restore`. Between two steps it counts the same in every process.
    """

    plan: Any
    training: TrainingConfig
    grad_norm: float = 0.0
    accelerator: Any
    args: Any
    model: Any
    optimizer: Any
    state: Any

    @property
    def device(self) -> torch.device:
        """Where this process computes."""
        return self.accelerator.device

    def check_processes(self) -> None:
        """Raise `TrainingError` unless the plan was made for as many processes as there are."""
        if ranks.count() != self.training.processes:
            raise TrainingError(
                f"training.processes is {self.training.processes} and {ranks.count()} run"
            )

    def counters(self) -> dict[str, Any]:
        """Return what the update has counted so far, as JSON values."""
        return {"grad_norm": self.grad_norm}

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors beside model and optimizer that the rest of the update needs."""
        return {}

    def restore(self, counters: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """Go on from what `counters` and `tensors` were."""
        self.grad_norm = counters["grad_norm"]

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write weights, optimizer and the count of steps; the keeper adds the rest and seals."""
        del model, trial
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        folder.mkdir(parents=True, exist_ok=True)
        tensors = optimizer_tensors(self.model, self.optimizer)
        save_tensors(tensors, folder, STATE, sharded=self.training.sharded)
        if ranks.first():
            self.state.save_to_json(str(folder / "trainer_state.json"))

    def _load_from_checkpoint(self, resume_from_checkpoint: Any, model: Any = None) -> None:
        """Load nothing yet: the loop asks again once model and optimizer are in place."""

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Take weights and optimizer back, in place; a constant rate has no schedule to restore."""
        if checkpoint is None:
            return
        tensors = load_tensors(Path(checkpoint), STATE, sharded=self.training.sharded)
        try:
            restore_optimizer(self.model, self.optimizer, tensors)
        except ValueError as error:
            raise TrainingError(f"the trainer checkpoint {checkpoint} {error}") from error

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Load nothing: an update draws no random number after its first step."""

    @contextmanager
    def looking(self) -> Generator[None]:
        """Return a context for forward passes between two steps; no gradient comes of them."""
        with torch.no_grad(), self.accelerator.autocast():
            yield
        reshard(self.model)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write nothing: TRL puts a card beside every trainer checkpoint."""

    def _send_telemetry(self) -> None:
        """Send nothing: TRL would report each construction to its hub."""

    def get_train_dataloader(self) -> Any:
        """Return a loader of the plan's micro-batches, one an item, each exactly once a pass."""
        loader = DataLoader(self.plan, batch_size=1, shuffle=False, collate_fn=_only)
        return self.accelerator.prepare(loader)

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> float:
        # Called by the loop after clipping and before the optimizer: the last moment at which a
        # bad gradient has not reached a weight.
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)  # type: ignore[misc]
        value = whole(norm) if isinstance(norm, torch.Tensor) else norm
        self.grad_norm = finite(float(value), "gradient norm")
        return self.grad_norm


def _only(items: list[Any]) -> Any:
    return items[0]


def train_quietly(trainer: Any, keeper: CheckpointKeeper) -> int:
    """Return the number of optimizer steps of the update, those before a resumption included."""
    trainer.remove_callback(PrinterCallback)  # with progress bars off it prints to stdout
    trainer.add_callback(keeper)  # the last: the others' state of the step goes into a checkpoint
    return int(trainer.train(resume_from_checkpoint=keeper.resume(trainer)).global_step)


def finite(value: float, place: str) -> float:
    """Return `value`, or raise `NumericalError` naming the place."""
    if not math.isfinite(value):
        raise NumericalError(f"{place} is {value}: lower the learning rate or look at the rows")
    return value
