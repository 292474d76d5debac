"""TRL's SFTTrainer with the mean likelihood of the answers' tokens, step by step.

The loss of one step, i over its `batch_rows` rows, T completion tokens in all of them:

    L = (1 / T) sum_i sum_t -log pi(y_it | y_i<t, x_i)

Each row is trained once, in the given order. Micro-batches add their share of the sum, so
accumulation and the number of processes change nothing but rounding.
"""

# TRL, transformers and datasets come without complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from datasets import Dataset
from torch.nn.functional import cross_entropy
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from genenv_core.training.loop.steps import (
    StepTrainer,
    UpdateOutcome,
    checked,
    shared_arguments,
    unchanged,
)
from genenv_core.training.loop.update import carry_out
from genenv_core.training.policies.completions import completion_logits
from genenv_core.training.policies.weights import LoadedPolicy
from genenv_core.training.requests import UpdateResult
from genenv_core.training.sft.batches import ExampleBatches, Examples
from genenv_core.training.updates.warm_start import SftRequest


class ExampleTrainer(StepTrainer, SFTTrainer):
    """TRL's SFTTrainer with the loss of this module."""

    step_batches: ExampleBatches
    loss_is_scaled_for_ga = True  # each micro-batch returns its share of the step's loss

    def __init__(self, policy: LoadedPolicy, rows: Examples, request: SftRequest, home: Path):
        settings = request.settings
        self.training = request.training
        processes = self.training.processes
        self.step_batches = ExampleBatches(
            rows,
            settings.batch_rows,
            settings.micro_batch_rows,
            processes,
            shared=self.training.shares_rows,
        )
        self.follows, self._leaves = request.follows, request.leaves
        super().__init__(
            model=policy.model,
            args=SFTConfig(
                **shared_arguments(home, request),
                num_train_epochs=1,
                gradient_accumulation_steps=self.step_batches.per_step // processes,
                per_device_train_batch_size=1,
                max_length=None,
                dataset_kwargs={"skip_prepare_dataset": True},
            ),
            # Formal: the loop reads `step_batches`. TRL looks at the first row and the columns.
            train_dataset=Dataset.from_dict({"input_ids": [[0]] * len(rows.row_id)}),
            data_collator=unchanged,
            processing_class=policy.tokenizer,
        )
        self.check_processes()

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return this micro-batch's share of the step's loss, times the number of processes."""
        del return_outputs, num_items_in_batch
        nll = cross_entropy(completion_logits(model, inputs), inputs["targets"], reduction="sum")
        loss = nll * inputs["counts"] / inputs["tokens"]
        self.add(loss=checked(loss.item(), "loss of the warm start"))
        return loss * self.training.processes

    def outcome(self) -> UpdateOutcome:
        """Leave the weights for the next round; return the loss of the last step, before it."""
        if self._leaves is not None:
            self.leave(self._leaves)
        return UpdateOutcome({"loss": self.loss})


def update(request: SftRequest, stop: Callable[[], bool]) -> UpdateResult:
    """Return the result of further supervised steps, one for each `batch_rows` rows.

    It saves the policy in `request.output`. Metrics: loss and grad_norm of the last step, before
    it.
    """
    return carry_out(request, stop, Examples.read, ExampleTrainer)
