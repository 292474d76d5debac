"""What the trainers share: ready batches, checkpoints as safetensors, no telemetry.

- `StepBatches`, and no counter inside the library, names the rows of each micro-batch: so a resumed
  loop that skips batches trains the right rows.
- Several processes take the micro-batches in turn. The loss divides by a count over the rows of all
  processes. Each process multiplies its loss by their number, because DDP, FSDP and DeepSpeed
  average gradients where the loss needs a sum.
"""

# TRL, transformers and datasets come without complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # rollout_func is meant, no notice needed

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import PrinterCallback

from genenv_core.checks import not_finite
from genenv_core.config.sections.training import TrainingConfig
from genenv_core.errors import NumericalError, TrainingError
from genenv_core.training.loop.checkpoints import STATE, CheckpointKeeper
from genenv_core.training.policies import ranks
from genenv_core.training.policies.shards import (
    load_tensors,
    optimizer_tensors,
    reshard,
    restore_optimizer,
    save_tensors,
    whole,
)
from genenv_core.training.requests import UpdateRequest
from schemas.enums import UpdateAction


def shared_arguments(home: Path, request: UpdateRequest) -> Any:
    """Return the TrainingArguments that all updates share.

    The rate is constant (`StepTrainer` warms it up), output is off, and there is no schedule of
    checkpoints: the keeper asks for them, and they go to `home`.
    """
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
        "router_aux_loss_coef": 0.0,  # TRL would add a loss that balances experts
    }


class StepBatches(Dataset[Any]):
    """The micro-batches of one pass, in order; `set_epoch` may make those of another pass."""

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Any:
        return self.batches[index]


class UpdateOutcome(NamedTuple):
    """The result of an update as its loss sees it; the fields are those of `UpdateResult`."""

    metrics: dict[str, float]
    action: UpdateAction = UpdateAction.UPDATED
    note: str = ""


class StepTrainer:
    """A mixin for TRL trainers: ready batches, no telemetry, checked gradients, safetensors.

    It is a `checkpoints.Resumable`: a subclass adds the counts of its result to `counters` and
    takes them back in `restore`. Between two steps they are the same in every process.
    """

    summed: ClassVar[tuple[str, ...]] = ("loss",)
    """Values that are sums over a step: each micro-batch adds its share."""

    step_batches: Any
    training: TrainingConfig
    step_values: dict[str, float]
    """The `summed` values of the last finished step, over all processes."""
    grad_norm: float = 0.0
    follows: Path | None = None
    """The folder in which an earlier update left its weights and optimizer (`leave`), if any."""
    warmup_steps: int = 0
    """How many first steps of an update have a learning rate below its value."""
    accelerator: Any
    args: Any
    model: Any
    optimizer: Any
    state: Any

    def __init__(self, *given: Any, **named: Any) -> None:
        self.step_values = dict.fromkeys(self.summed, 0.0)
        self._shares = dict(self.step_values)
        super().__init__(*given, **named)

    @property
    def loss(self) -> float:
        """The loss of the last finished step, over all processes."""
        return self.step_values["loss"]

    def add(self, **shares: float) -> None:
        """Add this micro-batch's shares of the step's `summed` values."""
        for name, share in shares.items():
            self._shares[name] += share

    def leave(self, folder: Path) -> None:
        """Write weights and optimizer, each process its part, for an update that `follows`."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = optimizer_tensors(self.model, self.optimizer)
        save_tensors(tensors, folder, STATE, sharded=self.training.sharded)

    def check_processes(self) -> None:
        """Raise `TrainingError` unless as many processes run as the batches are cut for."""
        if ranks.count() != self.training.processes:
            raise TrainingError(
                f"training.processes is {self.training.processes} and {ranks.count()} run"
            )

    def outcome(self) -> UpdateOutcome:
        """End the update after its last step, and return its result."""
        raise NotImplementedError

    def counters(self) -> dict[str, Any]:
        return {"grad_norm": self.grad_norm, "step_values": self.step_values}

    def tensors(self) -> dict[str, torch.Tensor]:
        return {}

    def restore(self, counters: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        self.grad_norm, self.step_values = counters["grad_norm"], counters["step_values"]

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write weights, optimizer and the count of steps; the keeper adds the rest and seals."""
        del model, trial
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        self.leave(folder)
        if ranks.first():
            self.state.save_to_json(str(folder / "trainer_state.json"))

    def _load_from_checkpoint(self, resume_from_checkpoint: Any, model: Any = None) -> None:
        """Load nothing yet: the loop asks again once model and optimizer are in place."""

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Take back weights and optimizer; a constant rate has no schedule to restore."""
        if checkpoint is not None:
            self._take_back(Path(checkpoint))

    def begin(self) -> None:
        """Take weights and optimizer from the update that this one `follows`, if any."""
        if self.follows is not None:
            self._take_back(self.follows)

    def _take_back(self, folder: Path) -> None:
        tensors = load_tensors(folder, STATE, sharded=self.training.sharded)
        try:
            restore_optimizer(self.model, self.optimizer, tensors)
        except ValueError as error:
            raise TrainingError(f"the trainer checkpoint {folder} {error}") from error

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Load nothing: an update draws no random number after its first step."""

    @contextmanager
    def looking(self) -> Generator[None]:
        """Return a context for forward passes between two steps, without gradients."""
        with torch.no_grad(), self.accelerator.autocast():
            yield
        reshard(self.model)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write nothing: TRL puts a card beside every trainer checkpoint."""

    def _send_telemetry(self) -> None:
        """Send nothing: TRL would report each construction to its hub."""

    def get_train_dataloader(self) -> Any:
        """Return a loader of the micro-batches, one an item, each exactly once a pass."""
        loader = DataLoader(self.step_batches, batch_size=1, collate_fn=itemgetter(0))
        return self.accelerator.prepare(loader)

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> float:
        # Called by the loop after clipping and before the optimizer: the last moment before a
        # bad gradient reaches a weight.
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)  # type: ignore[misc]
        value = whole(norm) if isinstance(norm, torch.Tensor) else norm
        self.grad_norm = checked(float(value), "gradient norm")
        totals = ranks.total(*self._shares.values())
        self.step_values = dict(zip(self._shares, totals, strict=True))
        self._shares = dict.fromkeys(self.summed, 0.0)
        # From the count of steps alone, so that a resumed update needs no state of a schedule.
        share = warmed_up(self.state.global_step, self.warmup_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.args.learning_rate * share
        return self.grad_norm


def unchanged(rows: Any) -> Any:
    """Return rows as they are, for TRL's collator: micro-batches come ready."""
    return rows


def train_quietly(trainer: Any, keeper: CheckpointKeeper) -> int:
    """Train; return the update's optimizer steps, also those before a resumption."""
    if (deepspeed := trainer.accelerator.state.deepspeed_plugin) is not None:
        # With bfloat16 it would add up and exchange gradients in that, whatever their number is.
        sums = {"data_types": {"grad_accum_dtype": "fp32"}, "communication_data_type": "fp32"}
        deepspeed.deepspeed_config.update(sums)
    trainer.remove_callback(PrinterCallback)  # with progress bars off it prints to stdout
    trainer.add_callback(keeper)  # the last: the others' state of the step goes into a checkpoint
    return int(trainer.train(resume_from_checkpoint=keeper.resume(trainer)).global_step)


def warmed_up(step: int, warmup_steps: int) -> float:
    """Return the share of the learning rate in step 0, 1, ...: it rises in equal parts to 1.

    Without a warm-up, Adam's first step has full length along the sign of the gradient, however
    small the gradient is.
    """
    return min(1.0, (step + 1) / (warmup_steps + 1))


def checked(value: float, place: str) -> float:
    """Return a finite `value`; else raise `NumericalError`, which names `place` and what to do."""
    if bad := not_finite([(place, value)]):
        raise NumericalError(f"{bad}: lower the learning rate or look at the rows")
    return value
