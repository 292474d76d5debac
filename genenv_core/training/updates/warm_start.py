"""Supervised steps of a given policy on examples, before the game."""

from __future__ import annotations

from pathlib import Path

from genenv_core.config.sections.training import TrainingConfig
from genenv_core.config.sections.warm_start import WarmStartConfig
from genenv_core.config.stages import WARM
from genenv_core.training.requests import UpdateRequest
from genenv_core.training.updates.kind import UpdateKind
from genenv_core.training.updates.rwr import of_env
from genenv_core.types import Policy


def of_warm_start(training: TrainingConfig) -> TrainingConfig:
    """Return the training settings of a warm start, sharded as pi_env's update is.

    It merges adapters: the game's own ones begin at a first checkpoint without an adapter, because
    a KL to it switches them off.
    """
    settings = of_env(training)
    if not settings.lora.rank:
        return settings
    return settings.model_copy(update={"lora": settings.lora.model_copy(update={"merge": True})})


class SftRequest(UpdateRequest):
    """Supervised steps of a given policy on examples: one round of its warm start.

    A row is an example: `row_id` str, `prompt_ids` list<int32>, `completion_ids` list<int32>, the
    token that ends the turn included. Their number is a multiple of `settings.batch_rows`, and each
    such batch is one optimizer step.

    All rounds are one optimization from the same `checkpoint`. A round `leaves` its weights
    (adapters, with LoRA) and Adam's moments in a folder, and the next one `follows` that folder.
    """

    loss = "warm_start"

    policy: Policy  # pyright: ignore[reportIncompatibleVariableOverride]
    settings: WarmStartConfig  # pyright: ignore[reportIncompatibleVariableOverride]
    follows: Path | None = None
    leaves: Path | None = None

    @property
    def models(self) -> list[Path]:
        return [self.checkpoint, *([self.follows] if self.follows else [])]

    @property
    def what(self) -> str:
        return f"warm start of pi_{self.policy.value} from {self.checkpoint}"


UPDATE = UpdateKind(
    request=SftRequest,
    trainer="genenv_core.training.sft.trainer",
    title="warm start",
    stage=WARM,
    bound=None,
    measures={"loss": "of the last step, before it"},
    training=of_warm_start,
)
