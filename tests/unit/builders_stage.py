"""Stages without an engine: inputs that are nothing, and what every stage finds its fields in."""

from __future__ import annotations

from dataclasses import dataclass

from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.unions.benchmark import MeasuredCheckpoint


@dataclass(frozen=True)
class NoInputs:
    """The inputs of a stage that reads no other stage's output."""


NO_INPUTS = NoInputs()


def for_every_stage(config: RunConfig) -> RunConfig:
    """Return a configuration with a model to measure too, so that every stage has what it reads."""
    return config.model_copy(update={"benchmark": MeasuredCheckpoint(model="m")})
