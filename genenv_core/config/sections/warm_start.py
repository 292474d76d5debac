"""Warm start of given models: a few supervised steps before the game begins."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, model_validator

from genenv_core.config.sections.updates import UpdateSettings


class WarmStartConfig(UpdateSettings):
    """Supervised steps that teach a given model the form of tasks and answers in epoch 0.

    The stage measures a model before the first step and after every round. It ends with the first
    measurement at or above the target, and after `steps` at the latest.
    """

    easy_skew: ClassVar[float] = 0.5
    """Share of the domain's own examples for pi_env that are nearly all of the lowest difficulty;
    the difficulty of the others is uniform."""

    steps: int = Field(default=0, ge=0, le=100_000)
    """Most optimizer steps of each given model; 0: no warm start."""
    round_steps: int = Field(default=6, ge=1, le=100_000)
    """Steps between two measurements. The rounds are one optimization: Adam's moments go on."""
    batch_rows: int = Field(default=16, ge=1, le=4096)
    """Examples in one optimizer step."""
    micro_batch_rows: int = Field(default=16, ge=1, le=4096)
    """Most rows in one forward and backward pass of a process; lower it when memory runs out."""
    learning_rate: float = Field(default=3e-5, gt=0, le=1)
    """Learning rate, constant. It suits whole weights; adapters (training.lora.rank) want about ten
    times as much."""
    max_grad_norm: float = Field(default=1.0, gt=0, le=1000)
    """Gradient norm above which gradients are scaled down."""
    agent_target: float = Field(default=0.3, gt=0, le=1)
    """Share of fresh examples that pi_agent has to answer word for word, sampled greedily; below 1,
    so that something is left to learn."""
    env_target: float = Field(default=0.6, gt=0, le=1)
    """Share of pi_env's texts, sampled as in the game, that have to be valid tasks."""
    probe_rows: int = Field(default=64, ge=4, le=100_000)
    """Examples, or texts, in one measurement."""
    examples: str | None = Field(default=None, min_length=1)
    """Examples in place of the domain's own: a JSONL file with rows of policy (agent or env),
    messages and answer, or run:RUN[@EPOCH], a run of this root or of roots.read, such as one that a
    teacher played: its right attempts and its valid tasks. Their content is in the key."""

    @model_validator(mode="after")
    def _useful(self) -> Self:
        given = [
            name
            for name, field in type(self).model_fields.items()
            if getattr(self, name) != field.default
        ]
        if given and "steps" not in self.model_fields_set:  # steps 0 turns a preset's off
            raise ValueError(
                f"warm_start.{given[0]} does nothing without warm_start.steps: set steps, such as "
                "60, or remove it"
            )
        return self
