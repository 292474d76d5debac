"""Reward-weighted regression of pi_env: TRL's SFTTrainer with row weights and a KL leash.

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

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import polars as pl
import torch
from datasets import Dataset
from trl.models.utils import prepare_fsdp
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from genenv_core.algorithm.rwr import step_count
from genenv_core.engines.adapters import has_adapter
from genenv_core.errors import NumericalError, TrainingError
from genenv_core.training import ranks
from genenv_core.training.base import RwrRequest, UpdateResult
from genenv_core.training.checkpoints import CheckpointKeeper
from genenv_core.training.common import (
    PlanDataset,
    PlannedTrainer,
    device_memory,
    finite,
    frozen_dtype,
    load_model,
    load_policy,
    shared_arguments,
    train_quietly,
    training_session,
    workspace,
)
from genenv_core.training.fitting import fitted
from genenv_core.training.leash import Leash
from genenv_core.training.lora import same_base
from genenv_core.training.ranks import cut
from genenv_core.training.rows import check_vocabulary, read_rows, refuse
from genenv_core.training.shards import local, trained

_COLUMNS = {
    "row_id": pl.String,
    "prompt_ids": pl.List(pl.Int64),
    "completion_ids": pl.List(pl.Int64),
    "weight": pl.Float64,
}
_REFERENCE_CACHE_VALUES = 2**24
"""Reference logprobs kept between steps, 64 MiB in float32; beyond it they are computed again."""


def run_rwr(request: RwrRequest, stop: Callable[[], bool]) -> UpdateResult:
    """Return pi_env after one reward-weighted regression, saved in `request.output`.

    `stop` is asked after each optimizer step; True ends the update with `Stopped`.

    Metrics: loss, nll (weighted) and grad_norm are of the last step that used them, before it;
    kl_env is of the weights saved; kl_cap_hits counts states above the cap, the start included.
    """
    rows = _read(request)
    request = fitted(request, device_memory(request.training))
    what = f"RWR update of pi_env from {request.checkpoint}"
    with (
        training_session(
            what,
            threads=request.threads,
            seed=request.seed,
            section="rwr",
            micro_batch_rows=request.settings.micro_batch_rows,
        ),
        workspace(request.output, request.checkpoint, request.initial) as work,
        CheckpointKeeper(request, [request.checkpoint, request.initial], what, stop) as keeper,
    ):
        policy = load_policy(request.checkpoint, request.training)
        size = policy.model.get_input_embeddings().num_embeddings
        reference = _reference(request, size)
        check_vocabulary("row_id", rows["row_id"], rows["prompt_ids"], rows["completion_ids"], size)
        trainer = WeightedRegressionTrainer(
            policy.model, policy.tokenizer, reference, rows, request, keeper.folder or work
        )
        leash = Leash(trainer, request.settings)
        trainer.leash = leash
        trainer.add_callback(leash)
        steps = train_quietly(trainer, keeper)
        leash.settle()
        policy.save(trainer.model, request.output, work)
    metrics = {
        "loss": trainer.loss,
        "nll": trainer.nll,
        "kl_env": leash.kl,
        "kl_cap_hits": float(leash.hits),
        "rolled_back": float(leash.rolled_back),
        "grad_norm": trainer.grad_norm,
    }
    return UpdateResult(
        steps=steps,
        checkpoint=request.output,
        metrics=metrics,
        action=leash.action,
        note=leash.note,
        resumed_at=keeper.resumed_at,
    )


def _reference(request: RwrRequest, size: int) -> Any:
    """Return pi_env^0; None where the policy is pi_env^0 with an adapter, that can be left out."""
    lora = request.training.lora
    if lora.rank and not has_adapter(request.initial):
        merging = lora.merge and has_adapter(request.checkpoint)
        if not merging and same_base(request.checkpoint, request.initial):
            return None
    reference = load_model(request.initial, dtype=frozen_dtype(request.training))
    if (other := reference.get_input_embeddings().num_embeddings) != size:
        raise TrainingError(
            f"pi_env has a vocabulary of {size} and its initial {request.initial} of {other}"
        )
    return reference


def _read(request: RwrRequest) -> dict[str, list[Any]]:
    """Return the checked columns of the update; errors name the row and the value."""
    frame = read_rows(request.rows, _COLUMNS, "pi_env")
    key, weight = "row_id", pl.col("weight")
    refuse(frame, pl.col(key).is_duplicated(), pl.col(key), "row_id repeats", key=key)
    for name in ("prompt_ids", "completion_ids"):
        refuse(frame, pl.col(name).list.len() == 0, pl.lit("[]"), f"empty {name}", key=key)
    refuse(
        frame, ~weight.is_finite(), weight, "weight must be finite", key=key, error=NumericalError
    )
    refuse(frame, weight < 0, weight, "weight must not be negative", key=key)
    mean = float(frame["weight"].to_numpy().mean())
    if abs(mean - 1) > 1e-6:
        raise TrainingError(f"weights of pi_env's rows have mean {mean:.9g} and must have mean 1")
    return {name: frame[name].to_list() for name in frame.columns}


class RowPlan(PlanDataset):
    """All rows as padded micro-batches, rows of about the same length together.

    Several processes take them in turn, so that those of one turn are of about the same length.
    """

    def __init__(self, rows: dict[str, list[Any]], micro: int, processes: int = 1) -> None:
        super().__init__()
        self.rows = len(rows["row_id"])
        self.tokens = sum(len(ids) for ids in rows["completion_ids"])
        lengths = [
            len(prompt) + len(completion)
            for prompt, completion in zip(rows["prompt_ids"], rows["completion_ids"], strict=True)
        ]
        # The sum over all rows does not depend on their order, so the order may save padding.
        order = sorted(range(self.rows), key=lambda index: (lengths[index], index))
        for start, stop in cut(self.rows, most=micro, processes=processes):
            # An empty one, with fewer rows than processes, is a row that counts for nothing.
            batch = _pad(rows, order[start:stop] or order[:1])
            counts = 1.0 if stop > start else 0.0
            self.batches.append(batch | {"index": len(self.batches), "counts": counts})


def _pad(rows: dict[str, list[Any]], chosen: list[int]) -> dict[str, Any]:
    """Return right-padded tensors (B, L); `scored` (B, L - 1) marks what predicts a completion."""
    prompts = [rows["prompt_ids"][index] for index in chosen]
    completions = [rows["completion_ids"][index] for index in chosen]
    lengths = torch.tensor([[len(p), len(c)] for p, c in zip(prompts, completions, strict=True)])
    width = int(lengths.sum(1).max())
    position = torch.arange(width)
    input_ids = torch.zeros(len(chosen), width, dtype=torch.long)
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        input_ids[row, : len(prompt) + len(completion)] = torch.tensor(prompt + completion)
    first, end = lengths[:, :1], lengths.sum(1, keepdim=True)
    scored = (position[1:] >= first) & (position[1:] < end)
    weight = torch.tensor([rows["weight"][index] for index in chosen], dtype=torch.float32)
    return {
        "input_ids": input_ids,
        "attention_mask": (position < end).long(),
        "scored": scored,
        "token_weight": weight.unsqueeze(1).expand_as(scored)[scored],
        # Logits before the first completion of the batch are never needed.
        "keep": width - int(lengths[:, 0].min()) + 1,
    }


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
