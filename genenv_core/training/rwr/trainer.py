"""TRL's SFTTrainer with the weighted likelihood of reward-weighted regression, and a KL leash.

The loss of one step (GenEnv, arXiv 2512.19682; reward-weighted regression after Peters and Schaal,
2007), i over the rows with a weight above 0, T completion tokens in total; j over the N rows on the
leash:

    L = (1 / T) sum_i w_i sum_t -log pi(y_it | y_i<t, x_i)  +  kl_coef * KL
    KL = (1 / N) sum_j sum_t sum_v pi(v) (log pi(v) - log pi0(v))     nats a sequence

- The likelihood term is a mean over *tokens*, so a long generation counts by its length and the
  scale of the term does not grow with the length of generations. Weights have mean 1.
- The KL is exact: the whole vocabulary at every completion position, along the rows on the leash.
  These are what pi_env wrote when the update started, whatever became of it, so the KL is then an
  unbiased estimate of KL(pi_env || pi_env^0). After some steps they are no longer fresh, so a
  finished update is measured anew (`genenv_core.epoch.probe`).
- A step covers all rows. Micro-batches add their share of both sums, so accumulation and the
  number of processes change nothing but rounding.

`genenv_core.training.rwr.leash` describes the cap.
"""

# TRL, transformers and datasets come without complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import send_to_device
from datasets import Dataset
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from genenv_core.algorithm.pay.weights import step_count
from genenv_core.engines.transformers.scoring import kl_terms
from genenv_core.training.loop.steps import (
    StepTrainer,
    UpdateOutcome,
    checked,
    shared_arguments,
    unchanged,
)
from genenv_core.training.loop.update import carry_out
from genenv_core.training.memory.estimate import REFERENCE_CACHE_VALUES
from genenv_core.training.policies import ranks
from genenv_core.training.policies.completions import completion_logits
from genenv_core.training.policies.reference import frozen, load_reference
from genenv_core.training.policies.shards import local, trained
from genenv_core.training.policies.weights import LoadedPolicy
from genenv_core.training.requests import UpdateResult
from genenv_core.training.rwr.batches import RowBatches, StoredGenerations
from genenv_core.training.rwr.leash import Leash
from genenv_core.training.rwr.reference import LeashReference
from genenv_core.training.updates.rwr import RwrRequest


class WeightedRegressionTrainer(StepTrainer, SFTTrainer):
    """TRL's SFTTrainer with the loss of this module; `leash` decides which terms a step follows."""

    summed = ("loss", "nll")
    step_batches: RowBatches
    loss_is_scaled_for_ga = True  # each micro-batch returns its share of the step's loss

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        reference: Any,
        rows: StoredGenerations,
        request: RwrRequest,
        home: Path,
    ) -> None:
        settings = request.settings
        self.training = request.training
        processes = self.training.processes
        self.step_batches = RowBatches(
            rows, settings.micro_batch_rows, processes, shared=self.training.shares_rows
        )
        self.kl_coef = settings.kl_coef
        super().__init__(
            model=model,
            args=SFTConfig(
                **shared_arguments(home, request),
                num_train_epochs=step_count(
                    self.step_batches.rows,
                    steps=settings.steps,
                    steps_per_row=settings.steps_per_row,
                ),
                gradient_accumulation_steps=len(self.step_batches) // processes,
                per_device_train_batch_size=1,
                max_length=None,
                dataset_kwargs={"skip_prepare_dataset": True},
            ),
            # Formal: the loop reads `step_batches`. TRL looks at the first row and the columns.
            train_dataset=Dataset.from_dict({"input_ids": [[0]] * self.step_batches.rows}),
            data_collator=unchanged,
            processing_class=tokenizer,
        )
        self.check_processes()
        vocabulary = model.get_input_embeddings().num_embeddings
        first = None if reference is None else frozen(reference, self.accelerator)
        self.reference = LeashReference(
            lambda: self.model if first is None else first,
            partial(self._as_first, adapted=reference is None),
            whole=self.step_batches.leash_tokens * vocabulary <= REFERENCE_CACHE_VALUES,
            sharded=self.training.sharded,
        )
        self.leash = Leash(self, settings)
        self.add_callback(self.leash)

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
        loss = kl if self.leash.pulling else nll + self.kl_coef * kl
        self.add(loss=checked(loss.item(), "RWR loss"), nll=nll.item())
        return loss * self.training.processes

    def _terms(self, model: Any, batch: dict[str, Any]) -> tuple[Any, Any]:
        """Return a micro-batch's shares of the weighted token NLL and of the KL a sequence."""
        logprobs = completion_logits(model, batch).log_softmax(-1)
        chosen = logprobs.gather(1, batch["targets"].unsqueeze(1)).squeeze(1)
        nll = -(batch["token_weight"] * chosen).sum() / self.step_batches.tokens
        kl = 0 * nll  # a number with a slope: a step that follows the KL alone goes back through it
        if batch["leash"]:
            kl = kl_terms(logprobs, self.reference.logprobs(batch)).sum()
            kl = kl / self.step_batches.leash_rows
        return nll * batch["counts"], kl * batch["counts"]

    @contextmanager
    def _as_first(self, *, adapted: bool) -> Generator[None]:
        """Return a context in which the policy is the first one: `adapted`, without its adapter."""
        without: Any = self.model.disable_adapter() if adapted else nullcontext()
        with self.accelerator.autocast(), without:
            yield

    def _leash_batches(self) -> list[Any]:
        """Return this process's micro-batches of rows on the leash, on its device."""
        own = self.step_batches.batches[ranks.index() :: self.training.processes]
        return [send_to_device(batch, self.accelerator.device) for batch in own if batch["leash"]]

    def measure_kl(self) -> float:
        """Return the KL of the current weights to pi_env^0 along the leash, nats a sequence."""
        with self.looking():
            shares = [self._terms(self.model, batch)[1].item() for batch in self._leash_batches()]
        return checked(ranks.total(sum(shares))[0], "KL of pi_env to its initial")

    def kl_gradient(self) -> dict[str, Any]:
        """Return this process's part of the gradient of that KL by parameter name."""
        model: Any = self.model_wrapped  # its backward pass sums over the processes
        model.zero_grad()
        for batch in self._leash_batches():
            with self.accelerator.autocast():
                share = self._terms(model, batch)[1] * self.training.processes
            share.backward()
        named = trained(self.model).items()
        gradient = {name: local(p.grad).clone() for name, p in named if p.grad is not None}
        model.zero_grad()
        return gradient

    def outcome(self) -> UpdateOutcome:
        """Return the result of the update; its KL is under the cap if that of any state was."""
        leash = self.leash
        leash.settle()
        metrics = {
            **self.step_values,
            "kl_leash": leash.kl,
            "kl_cap_hits": float(leash.hits),
            "rolled_back": float(leash.rolled_back),
        }
        return UpdateOutcome(metrics, leash.action, leash.note)

    def counters(self) -> dict[str, Any]:
        return super().counters() | {"leash": self.leash.counters()}

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the weights to which the update may go back."""
        return self.leash.kept

    def restore(self, counters: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        super().restore(counters, tensors)
        self.leash.restore(counters["leash"], tensors)


def update(request: RwrRequest, stop: Callable[[], bool]) -> UpdateResult:
    """Return the result of one reward-weighted regression; it saves pi_env in `request.output`.

    Metrics: loss, nll (weighted) and grad_norm are of the last step that used them, before it.
    kl_leash is of the saved weights. kl_cap_hits counts states above the cap, the start included.
    """
    return carry_out(request, stop, StoredGenerations.read, _trainer)


def _trainer(
    policy: LoadedPolicy, rows: StoredGenerations, request: RwrRequest, home: Path
) -> WeightedRegressionTrainer:
    reference = load_reference(request.initial, policy, request.policy)
    return WeightedRegressionTrainer(policy.model, policy.tokenizer, reference, rows, request, home)
