"""An update of pi_agent by a loss of one's own, in the loop that GRPO has.

The loss of one step, over the tokens t of its rollouts i that count (`AgentAlgorithm`):

    L = (1 / N) sum_i sum_t (losses_it + kl_coef * r_it k3_it)

N is the number of these tokens, or of the step's rollouts with a verdict, whatever the
micro-batches and processes. The KL term is the one of `genenv_core.training.grpo.trainer`.
"""

# TRL and torch come without complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from genenv_core.training.grpo.batches import StoredRollouts
from genenv_core.training.grpo.stored import RolloutTrainer, trainer_of
from genenv_core.training.loop.steps import checked
from genenv_core.training.loop.update import carry_out
from genenv_core.training.own.checking import check_losses, losses_of
from genenv_core.training.requests import UpdateResult
from genenv_core.training.updates.algorithm import (
    AgentAlgorithm,
    RolloutBatch,
    advantages_of,
    check_passes,
    get_algorithm,
)
from genenv_core.training.updates.own import OwnRequest


class OwnLossTrainer(RolloutTrainer):
    """The trainer of an update by an algorithm of one's own."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        reference: Any,
        rollouts: StoredRollouts,
        request: OwnRequest,
        home: Path,
    ) -> None:
        self._name = request.algorithm
        self._algorithm = get_algorithm(request.algorithm, request.options)
        check_passes(self._name, self._algorithm, request.settings.passes)
        check_losses(self._name, self._algorithm)
        self._advantages = _by_row(self._name, self._algorithm, rollouts)
        self._rewards = rollouts.of_attempts([reward or 0.0 for reward in rollouts.rewards])
        super().__init__(model, tokenizer, reference, rollouts, request, home)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Return a step's rows, with the advantages of the algorithm in place of GRPO's."""
        output = super()._generate_and_score_completions(inputs)
        size, rows = self.rollouts.group_size, list[int]()
        for row in inputs[::size]:
            first = self._first_row[row["prompt"]]
            rows += range(first, first + size)
        device = self.accelerator.device
        rewards = [self._rewards[row] for row in rows]
        output["advantages"] = torch.tensor([self._advantages[row] for row in rows], device=device)
        output["own_rewards"] = torch.tensor(rewards, device=device)
        return output

    def _scales(self, inputs: dict[str, Any]) -> dict[str, Any]:
        counts = {"tokens": inputs["step_tokens"].clamp(min=1), "rollouts": inputs["step_rows"]}
        share = self.training.processes / counts[self._algorithm.mean_over]
        return {"loss_scale": share if inputs["rows"] else 0.0}

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        logprobs = self._logprobs(model, inputs, compute_entropy=True)
        mask = inputs["completion_mask"] * inputs["tool_mask"]
        old = inputs["old_per_token_logps"]
        batch = RolloutBatch(
            logprobs=logprobs,
            old_logprobs=old,
            advantages=inputs["advantages"],
            rewards=inputs["own_rewards"],
            mask=mask.to(logprobs.dtype),
            groups=inputs["row_groups"],
        )
        losses = losses_of(self._name, self._algorithm, batch)
        if self.beta:
            gap = inputs["ref_per_token_logps"] - logprobs
            losses = losses + self.beta * (logprobs - old).exp() * (gap.exp() - gap - 1)
        # A token that does not count may have any loss, also NaN: 0 * NaN would be one.
        loss = losses.masked_fill(mask == 0, 0.0).sum() * inputs["loss_scale"]
        if inputs["rows"]:
            self._observe(inputs, checked(loss.item(), f"loss of {self._name}"))
        return loss


def update(request: OwnRequest, stop: Callable[[], bool]) -> UpdateResult:
    """Return the result of one update on `request.rows`; it saves the agent in `request.output`.

    Metrics are those of a GRPO update without clip_fraction.
    """
    return carry_out(request, stop, StoredRollouts.read, partial(trainer_of, OwnLossTrainer))


def _by_row(name: str, algorithm: AgentAlgorithm, rollouts: StoredRollouts) -> list[float]:
    """Return the advantage of each row, which is its attempt's; 0 without a verdict."""
    size, rewards = rollouts.group_size, rollouts.rewards
    groups = [rewards[first : first + size] for first in range(0, len(rewards), size)]
    judged = [[reward for reward in group if reward is not None] for group in groups]
    made: list[float] = []
    for group, advantages in zip(groups, advantages_of(name, algorithm, judged), strict=True):
        own = iter(advantages)
        made += [0.0 if reward is None else next(own) for reward in group]
    return rollouts.of_attempts(made)
