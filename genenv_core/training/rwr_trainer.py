"""TRL's SFTTrainer with the weighted likelihood of reward-weighted regression, and a KL leash.

The loss of one step, over all N rows with T completion tokens in total (GenEnv, arXiv 2512.19682;
reward-weighted regression after Peters and Schaal, 2007):

    L = (1 / T) sum_i w_i sum_t -log pi(y_it | y_i<t, x_i)  +  kl_coef * KL
    KL = (1 / N) sum_i sum_t sum_v pi(v) (log pi(v) - log pi0(v))     nats a sequence

- The likelihood term is a mean over *tokens*, so a long generation counts by its length and the
  scale of the term does not grow with the length of what pi_env writes. Weights have mean 1.
- The KL is exact: the whole vocabulary at every completion position, along the stored rows. It
  stands for KL(pi_env || pi_env^0) as far as the rows are fresh samples of pi_env.
- A step covers all rows. Micro-batches add their share of both sums, so accumulation and the
  number of processes change nothing but rounding.

How the cap works is told in `genenv_core.training.leash`.
"""

# TRL, transformers and datasets come without complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from trl.models.utils import prepare_fsdp
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from genenv_core.algorithm.rwr import step_count
from genenv_core.training import ranks
from genenv_core.training.base import RwrRequest
from genenv_core.training.generations import RowPlan
from genenv_core.training.leash import Leash
from genenv_core.training.planned import PlannedTrainer, finite, shared_arguments
from genenv_core.training.shards import local, trained

_REFERENCE_CACHE_VALUES = 2**24
"""Reference logprobs kept between steps, 64 MiB in float32; beyond it they are computed again."""


class WeightedRegressionTrainer(PlannedTrainer, SFTTrainer):
    """TRL's SFTTrainer with the loss of this module; `leash` decides which terms a step follows."""

    plan: RowPlan
    loss_is_scaled_for_ga = True  # each micro-batch returns its share of the step's loss

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        reference: Any,
        rows: dict[str, list[Any]],
        request: RwrRequest,
        home: Path,
    ) -> None:
        settings = request.settings
        self.training = request.training
        processes = self.training.processes
        self.plan = RowPlan(rows, settings.micro_batch_rows, processes)
        self.kl_coef = settings.kl_coef
        self.leash: Leash | None = None
        self.loss = self.nll = 0.0
        self._loss_sum = self._nll_sum = 0.0
        self._cached: dict[int, Any] = {}
        super().__init__(
            model=model,
            args=SFTConfig(
                **shared_arguments(home, request),
                num_train_epochs=step_count(
                    self.plan.rows, steps=settings.steps, steps_per_row=settings.steps_per_row
                ),
                gradient_accumulation_steps=len(self.plan) // processes,
                per_device_train_batch_size=1,
                max_length=None,
                dataset_kwargs={"skip_prepare_dataset": True},
            ),
            # Formal: the loop reads the plan. TRL only looks at the first row and the columns.
            train_dataset=Dataset.from_dict({"input_ids": [[0]] * self.plan.rows}),
            data_collator=_identity,
            processing_class=tokenizer,
        )
        self.check_processes()
        self.reference = reference
        if reference is not None:
            self.reference = _frozen(reference, self.accelerator)
        vocabulary = model.get_input_embeddings().num_embeddings
        self._caching = self.plan.tokens * vocabulary <= _REFERENCE_CACHE_VALUES

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return this micro-batch's share of the step's loss, times the number of processes."""
        del return_outputs, num_items_in_batch
        nll, kl = self._terms(model, inputs)
        pulling = self.leash is not None and self.leash.pulling
        loss = kl if pulling else nll + self.kl_coef * kl
        self._loss_sum += finite(loss.item(), "RWR loss")
        self._nll_sum += nll.item()
        return loss * self.training.processes

    def _terms(self, model: Any, batch: dict[str, Any]) -> tuple[Any, Any]:
        """Return a micro-batch's shares of the weighted token NLL and of the KL a sequence."""
        logprobs = _completion_logprobs(model, batch)
        targets = batch["input_ids"][:, 1:][batch["scored"]]
        chosen = logprobs.gather(1, targets.unsqueeze(1)).squeeze(1)
        nll = -(batch["token_weight"] * chosen).sum() / self.plan.tokens
        kl = (logprobs.exp() * (logprobs - self._reference_logprobs(batch))).sum() / self.plan.rows
        return nll * batch["counts"], kl * batch["counts"]

    def _reference_logprobs(self, batch: dict[str, Any]) -> Any:
        index = batch["index"]
        if index in self._cached:
            return self._cached[index]
        model, adapted = self.reference, nullcontext()
        if model is None:
            model = self.model
            adapted = model.disable_adapter()
        with torch.no_grad(), self.accelerator.autocast(), adapted:
            logprobs = _completion_logprobs(model, batch)
        if self._caching:
            self._cached[index] = logprobs
        return logprobs

    def _own_batches(self) -> list[Any]:
        """Return the micro-batches of this process, on its device."""
        own = self.plan.batches[ranks.index() :: self.training.processes]
        return [self._on_device(batch) for batch in own]

    def measure_kl(self) -> float:
        """Return the KL of the current weights to pi_env^0 on all rows, nats a sequence."""
        with self.looking():
            shares = [self._terms(self.model, batch)[1].item() for batch in self._own_batches()]
        return finite(ranks.total(sum(shares))[0], "KL of pi_env to its initial")

    def kl_gradient(self) -> dict[str, Any]:
        """Return this process's part of the gradient of that KL by parameter name."""
        model: Any = self.model_wrapped  # whose backward pass brings the processes' sums together
        model.zero_grad()
        for batch in self._own_batches():
            with self.accelerator.autocast():
                share = self._terms(model, batch)[1] * self.training.processes
            share.backward()
        named = trained(self.model).items()
        gradient = {name: local(p.grad).clone() for name, p in named if p.grad is not None}
        model.zero_grad()
        return gradient

    def counters(self) -> dict[str, Any]:
        """Return what the update has counted so far, as JSON values."""
        assert self.leash is not None
        own = {"loss": self.loss, "nll": self.nll, "leash": self.leash.counters()}
        return super().counters() | own

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the weights that the update may have to go back to."""
        assert self.leash is not None
        return self.leash.kept

    def restore(self, counters: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """Go on from what `counters` and `tensors` were."""
        assert self.leash is not None
        super().restore(counters, tensors)
        self.loss, self.nll = counters["loss"], counters["nll"]
        self.leash.restore(counters["leash"], tensors)

    def _on_device(self, batch: dict[str, Any]) -> dict[str, Any]:
        device = self.accelerator.device
        return {
            name: value.to(device) if isinstance(value, torch.Tensor) else value
            for name, value in batch.items()
        }

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> float:
        self.loss, self.nll = ranks.total(self._loss_sum, self._nll_sum)
        self._loss_sum = self._nll_sum = 0.0
        return super()._get_grad_norm(model, grad_norm=grad_norm)


def _completion_logprobs(model: Any, batch: dict[str, Any]) -> Any:
    """Return log pi over the vocabulary at each completion position, shape (tokens, V), float32."""
    keep, scored = batch["keep"], batch["scored"]
    output = model(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        logits_to_keep=keep,
        use_cache=False,
    )
    logits = output.logits[:, :-1][scored[:, scored.size(1) + 1 - keep :]]
    return logits.float().log_softmax(-1)


def _frozen(model: Any, accelerator: Any) -> Any:
    """Return a model on this process's device that is never trained; FSDP shards it."""
    model = model.eval().requires_grad_(False)
    if accelerator.is_fsdp2:
        return prepare_fsdp(model, accelerator)
    return model.to(accelerator.device)


def _identity(rows: Any) -> Any:
    return rows
