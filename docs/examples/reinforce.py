"""REINFORCE with a baseline (Williams, 1992, section 7), as an algorithm for the agent's update.

The loss of a rollout is -(reward - baseline) times the logprob of what pi_agent wrote, summed over
its tokens. Unlike GRPO it neither clips a ratio nor divides by a deviation of the rewards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:  # torch is not needed to look at keys, so it is not loaded for that
    import torch

    from genenv_core.training.updates.algorithm import RolloutBatch


class ReinforceOptions(BaseModel):
    """Options in `agent_update.options`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    baseline: Literal["group", "others"] = "group"
    """group: the mean reward of the group; others: the mean of its other rollouts."""


class Reinforce:
    """The gradient is right for rollouts of the current weights alone, so one pass is the most."""

    mean_over, most_passes = "rollouts", 1

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = ReinforceOptions.model_validate(options)

    def advantages(self, groups: Sequence[Sequence[float]]) -> list[list[float]]:
        """Return reward - baseline for each rollout."""
        return [[reward - self._baseline(reward, group) for reward in group] for group in groups]

    def _baseline(self, reward: float, group: Sequence[float]) -> float:
        if self.options.baseline == "group" or len(group) == 1:
            return sum(group) / len(group)
        return (sum(group) - reward) / (len(group) - 1)

    def losses(self, batch: RolloutBatch) -> torch.Tensor:
        """Return -advantage * logprob of each token, (B, T)."""
        return -batch.advantages[:, None] * batch.logprobs
