"""What both updates share: a quiet, seeded session; loading and saving; the loop's plumbing.

Decisions taken here, for both trainers:

- Weights are trained in float32 whatever the checkpoint stores: an update of 1e-6 is lost in
  bfloat16 weights. The checkpoint that comes out is float32.
- Dropout is off: the ratio and the KL compare two deterministic distributions.
- A checkpoint is written beside its destination and renamed into place, so it is whole or absent.
- Batches come from a plan (`PlanDataset`) that says which rows each micro-batch holds, and never
  from counters inside the library, so a resumed loop that skips batches trains the right rows.
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

from genenv_core.errors import GenenvError, ModelError, NumericalError, TrainingError
from genenv_core.training.checkpoints import CheckpointKeeper

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
                else "use a smaller model, shorter completions or more memory"
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
    config: Any
    generation: Any
    pad_token: str | None

    def save(self, output: Path, work: Path) -> None:
        """Write a complete checkpoint (safetensors, configs, tokenizer) to `output`."""
        for name, parameter in self.model.named_parameters():
            if not bool(torch.isfinite(parameter).all()):
                raise NumericalError(
                    f"weight {name} is not finite after the update of {self.source}"
                )
        staged = work / "checkpoint"
        self.model.config = self.config
        self.model.generation_config = self.generation
        self.tokenizer.pad_token = self.pad_token
        self.model.save_pretrained(staged)
        self.tokenizer.save_pretrained(staged)
        if output.exists():
            shutil.rmtree(output)
        os.replace(staged, output)


def load_model(checkpoint: Path) -> Any:
    """Return the model of a checkpoint directory in float32; `ModelError` when there is none."""
    if not (checkpoint / "config.json").is_file():
        raise ModelError(f"{checkpoint} is no checkpoint directory: it has no config.json")
    try:
        model = AutoModelForCausalLM.from_pretrained(
            checkpoint, dtype=torch.float32, use_safetensors=True, local_files_only=True
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


def _is_dropout_rate(name: str, value: object) -> bool:
    return name.endswith("dropout") and isinstance(value, float)


def load_policy(checkpoint: Path) -> LoadedPolicy:
    """Return the model and tokenizer of a checkpoint directory; `ModelError` when there is none."""
    model = load_model(checkpoint)
    try:
        tokenizer = AutoTokenizer.from_pretrained(checkpoint, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ModelError(f"tokenizer of {checkpoint} cannot be loaded: {error}") from error
    return LoadedPolicy(
        model,
        tokenizer,
        checkpoint,
        copy.deepcopy(model.config),
        copy.deepcopy(model.generation_config),
        tokenizer.pad_token,
    )


@contextmanager
def workspace(output: Path, *inputs: Path) -> Generator[Path]:
    """Return a scratch folder beside `output`, gone afterwards; refuse to overwrite an input."""
    for path in inputs:
        if path.resolve() == output.resolve():
            raise TrainingError(f"output {output} is also an input of the update: choose another")
    folder = output.parent / f".{output.name}.work"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def shared_arguments(home: Path, *, learning_rate: float, max_grad_norm: float, seed: int) -> Any:
    """Return the TrainingArguments that both updates share: constant rate, silent, no schedule of
    checkpoints (the keeper asks for them; they go to `home`)."""
    return {
        "output_dir": str(home),
        "learning_rate": learning_rate,
        "lr_scheduler_type": "constant",
        "max_grad_norm": max_grad_norm,
        "weight_decay": 0.0,
        "seed": seed,
        "data_seed": seed,
        "bf16": False,
        "fp16": False,
        "gradient_checkpointing": False,
        "use_cpu": not torch.cuda.is_available(),
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
    """Mixin for TRL trainers: batches from a plan, no telemetry, gradients checked each step.

    It is a `checkpoints.Resumable`: what a subclass counts for its result, it adds to `counters`
    and takes back in `restore`.
    """

    plan: Any
    grad_norm: float = 0.0
    accelerator: Any
    model: Any

    def counters(self) -> dict[str, Any]:
        """Return what the update has counted so far, as JSON values."""
        return {"grad_norm": self.grad_norm}

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors beside model and optimizer that the rest of the update needs."""
        return {}

    def restore(self, counters: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """Go on from what `counters` and `tensors` were."""
        self.grad_norm = counters["grad_norm"]

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        # A weight that the checkpoint names otherwise would keep its starting value in silence.
        own = {name for name, _ in self.model.named_parameters()}  # tied weights once
        lost = [name for name in load_result.missing_keys if name in own]
        if lost or load_result.unexpected_keys:
            raise TrainingError(
                "the trainer checkpoint does not fit the model: missing weights "
                f"{lost[:3]}, unknown ones {load_result.unexpected_keys[:3]}"
            )

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
        self.grad_norm = finite(float(norm), "gradient norm")
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
