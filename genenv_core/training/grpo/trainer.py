"""The loss of GRPO on stored rollouts, computed by TRL's GRPOTrainer.

The loss is TRL's, with the clipped ratio of DAPO (arXiv 2503.14476, eq. 8; DeepSeekMath's GRPO,
arXiv 2402.03300, eq. 3, with clip_low and clip_high apart):

    -min(r_t A, clip(r_t, 1 - clip_low, 1 + clip_high) A) + kl_coef * r_t k3_t
    A = (reward - group mean) / (group std with n - 1 + 1e-4), or the difference alone
    k3_t = exp(ref_t - logp_t) - (ref_t - logp_t) - 1
    ref = the checkpoint that the update started from, or pi_agent^0 (`kl_reference`)

Where A < 0, `delta` bounds r_t in the first term (INTELLECT-2, arXiv 2505.07291, section 3.4).
The factor r_t makes the KL's gradient the unbiased one of the current policy (DeepSeek-V3.2, arXiv
2512.02556), whoever sampled the tokens. The metric `kl` is the mean k3 of the last step.

`genenv_core.training.grpo.stored` names the departures from TRL. Of the loss there is one more.
Normalisation is over the optimizer step, whatever `micro_batch_rows` and the number of processes,
so both change nothing but rounding: `dapo` divides by the sampled tokens of the step, `grpo`
averages rows of the step by their own token mean, `dr_grpo` divides by rows times the longest
completion of the update (arXiv 2503.20783 takes a constant), `bnpo` divides by the sampled tokens
of the batch, which equals `dapo` where the step is the batch. TRL's mean and deviation of a group
with fewer rows than n are those of its rewards.

An attempt of several sequences has one advantage, which each of its sampled tokens gets. `dapo` and
`bnpo` divide by the sampled tokens of all sequences of the step, `dr_grpo` by its attempts times
the longest completion of one sequence. `grpo` would count it once a sequence, and refuses it.
"""

# TRL comes without complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from genenv_core.training.grpo.batches import StoredRollouts
from genenv_core.training.grpo.stored import RolloutTrainer, trainer_of
from genenv_core.training.loop.steps import checked
from genenv_core.training.loop.update import carry_out
from genenv_core.training.requests import UpdateResult
from genenv_core.training.updates.grpo import GrpoRequest


class StoredRolloutTrainer(RolloutTrainer):
    """The trainer of a GRPO update."""

    clips = True

    def _loss_arguments(self, request: GrpoRequest) -> dict[str, Any]:
        settings = request.settings
        return {
            "epsilon": settings.clip_low,
            "epsilon_high": settings.clip_high,
            "delta": settings.delta,
            "loss_type": settings.loss_type,
            "scale_rewards": settings.scale_rewards,
        }

    def _scales(self, inputs: dict[str, Any]) -> dict[str, Any]:
        tokens, verdicts, rows = inputs["step_tokens"], inputs["step_rows"], inputs["rows"]
        own = (inputs["completion_mask"] * inputs["tool_mask"]).sum()
        micro_batches, processes = (
            self.current_gradient_accumulation_steps,
            self.training.processes,
        )
        # The losses but dapo are means of the micro-batch over micro_batches: undo both.
        shares = {"dapo": 1.0 / micro_batches, "bnpo": processes * own / tokens.clamp(min=1)}
        share = shares.get(self.loss_type, processes * rows / verdicts)
        # TRL's dapo divides by this number times micro_batches / steps_per_generation.
        items = tokens * (self.step_batches.micro_batches_per_step / micro_batches)
        return {
            "num_items_in_batch": items,
            "loss_scale": share * micro_batches if rows else 0.0,
        }

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        with _alone(self.accelerator):
            loss = super()._compute_loss(model, inputs) * inputs["loss_scale"]
        if inputs["rows"]:
            self._observe(inputs, checked(loss.item(), "GRPO loss"))
        return loss

    def _clipped(self, inputs: dict[str, Any], mask: Any, ratio: Any) -> int:
        positive = (inputs["advantages"].unsqueeze(1) > 0).expand_as(mask)[mask]
        low = (ratio < 1 - self.epsilon_low) | (ratio > (self.args.delta or math.inf))
        return int(torch.where(positive, ratio > 1 + self.epsilon_high, low).sum())


@contextmanager
def _alone(accelerator: Any) -> Generator[None]:
    """Return a context in which this process alone computes TRL's metrics, which nobody reads.

    TRL gathers one number a row, and processes may have unequal numbers of rows.
    """
    accelerator.gather = _same
    accelerator.reduce = _same
    try:
        yield
    finally:
        del accelerator.gather, accelerator.reduce


def _same(tensor: Any, **_: Any) -> Any:
    return tensor


def update(request: GrpoRequest, stop: Callable[[], bool]) -> UpdateResult:
    """Return the result of one GRPO update on `request.rows`; the agent is in `request.output`.

    Metrics: loss, kl and grad_norm are the last optimizer step's. entropy, ratio_mean, ratio_max
    and clip_fraction are over all sampled tokens of the update that count in the loss (0 if none
    does). reward_mean and reward_std are over its rows. mismatch_masked is there with
    `max_mismatch`.
    """
    return carry_out(request, stop, StoredRollouts.read, partial(trainer_of, StoredRolloutTrainer))
