"""Reward-weighted regression of pi_env on its generations."""

from __future__ import annotations

from pathlib import Path

from genenv_core.config.sections.training import TrainingConfig
from genenv_core.config.sections.updates import RwrConfig
from genenv_core.config.stages import update_of
from genenv_core.training.requests import UpdateRequest
from genenv_core.training.updates.kind import UpdateKind
from genenv_core.types import Policy


def of_env(training: TrainingConfig) -> TrainingConfig:
    """Return the training settings of pi_env's update.

    Its KL cap copies and moves weights, which DeepSpeed keeps in its own pieces.
    """
    if training.strategy != "zero3":
        return training
    return training.model_copy(update={"strategy": "fsdp2"})


class RwrRequest(UpdateRequest):
    """One reward-weighted regression of pi_env.

    A row is a generation: `row_id` str, `prompt_ids` list<int32>, `completion_ids` list<int32>,
    `weight` float64 (0 for a row that only the KL uses; mean 1 over the others), `leash` bool
    (whether the KL is computed along it). `initial` is the checkpoint of pi_env^0, the reference of
    the KL term.
    """

    loss = "rwr"
    policy = Policy.ENV

    settings: RwrConfig  # pyright: ignore[reportIncompatibleVariableOverride]
    initial: Path

    @property
    def models(self) -> list[Path]:
        return [self.checkpoint, self.initial]


UPDATE = UpdateKind(
    request=RwrRequest,
    trainer="genenv_core.training.rwr.trainer",
    title="RWR update",
    stage=update_of(Policy.ENV),
    bound="generation.max_tokens",
    measures={
        "loss": "of the last step that used it",
        "nll": "weighted, nats a token, of the last step that used it",
        "kl_leash": "nats a sequence, to pi_env^0, after the update, along the rows on the leash",
        "kl_cap_hits": "states above the cap, the start included",
        "rolled_back": "whether the update ends on an earlier state (0/1)",
    },
    training=of_env,
    capped=True,
    kl=lambda _: "bootstrap",
    work=("rwr.kl_rows", "rwr.probe_generations"),
    units=lambda values: values["rwr"]["steps"],
)
