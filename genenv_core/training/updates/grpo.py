"""GRPO of pi_agent on stored rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import model_validator

from genenv_core.config.sections.rollout import RefillConfig
from genenv_core.config.sections.updates import GrpoConfig, KlReference
from genenv_core.config.stages import update_of
from genenv_core.training.requests import UpdateRequest
from genenv_core.training.updates.kind import AgentUpdateKind
from genenv_core.types import Policy


class GrpoRequest(UpdateRequest):
    """One GRPO update of pi_agent on stored rollouts.

    A row is a rollout, whole groups adjacent: `group_id` str, `prompt_ids` list<int32>,
    `completion_ids` list<int32>, `logprobs` list<float32> (under the policy that sampled them),
    `loss_mask` list<int8> (1 = sampled by the agent), `reward` float64, `truncated` bool (a limit
    of length or turns ended it). Every group has at most `group_size` rows, and unequal rewards.
    Where attempts have several sequences, each is a row, behind the one before it, and the column
    `sequence` int64 numbers them from 0; all have the reward of their attempt. `reference` is the
    checkpoint of pi_agent^0 where the KL term is to it (`grpo.kl_reference` bootstrap); None: the
    KL is to the checkpoint that the update starts from.
    """

    loss = "grpo"
    policy = Policy.AGENT

    # A frozen record's field may be narrower than its base's.
    settings: GrpoConfig  # pyright: ignore[reportIncompatibleVariableOverride]
    group_size: int
    temperature: float
    reference: Path | None = None

    @property
    def models(self) -> list[Path]:
        return [self.checkpoint, *([self.reference] if self.reference else [])]

    @model_validator(mode="after")
    def _as_set(self) -> Self:
        if (self.reference is None) != (self.settings.kl_reference == "start"):
            raise ValueError(
                f"reference {self.reference}, grpo.kl_reference {self.settings.kl_reference}: "
                "give the checkpoint of pi_agent^0 with bootstrap, and none with start"
            )
        return self


def most_rollouts(values: Mapping[str, Any]) -> float:
    """Return the most rollouts that an update computes a loss of, counted in each pass."""
    refill = RefillConfig(**values.get("refill", {}))  # older runs have no such section
    most = max(values["generation"]["tasks"], refill.groups)
    groups = min(values["grpo"]["max_groups"], most)
    return groups * values["rollout"]["n"] * values["grpo"]["passes"]


def _kl(settings: GrpoConfig) -> KlReference | None:
    return settings.kl_reference if settings.kl_coef else None


SEEN = {
    "loss": "of the last step",
    "kl": "to the reference, the last step's mean k3; 0 when off",
    "entropy": "mean over the sampled tokens that count, nats",
    "ratio_mean": "mean probability ratio of these tokens, now to when sampled",
    "ratio_max": "the largest of these ratios",
    "reward_mean": "mean reward of the rows",
    "reward_std": "their deviation",
    "mismatch_masked": "share of sampled tokens that grpo.max_mismatch leaves out, where it is set",
}
"""The metrics of every update on stored rollouts, whatever its loss."""

UPDATE = AgentUpdateKind(
    request=GrpoRequest,
    trainer="genenv_core.training.grpo.trainer",
    title="GRPO update",
    stage=update_of(Policy.AGENT),
    bound="rollout.max_length",
    measures=SEEN | {"clip_fraction": "share of the tokens whose ratio is clipped"},
    whole_logits=False,
    kl=_kl,
    units=most_rollouts,
    rule="genenv_core.training.grpo.advantages",
)
