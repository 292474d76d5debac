"""What a run measures in place of a co-evolution: a checkpoint, a chat endpoint, or nothing."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Discriminator, Field

from genenv_core.config.sections.benchmark import BenchmarkConfig
from genenv_core.config.sections.endpoint import NamedEndpoint
from genenv_core.config.sections.section import Section
from genenv_core.config.sections.unions.alternatives import NOTHING, Alternatives, by


class NoMeasurement(Section):
    """A run that measures no model: a co-evolution."""

    given: ClassVar[bool] = False
    certifies: ClassVar[bool] = False


class MeasuredCheckpoint(BenchmarkConfig):
    """A checkpoint that genenv samples."""

    attempt_seconds: ClassVar[None] = None
    """Null in stage keys: `rollout.max_turns` and `rollout.max_length` bound an attempt."""

    model: str = Field(min_length=1)
    """A Hugging Face checkpoint directory, run:RUN or run:RUN@EPOCH of this root, or
    models:/NAME/VERSION in MLflow; sampled by compute.engine."""
    simulator: str | None = Field(default=None, min_length=1)
    """The pi_env that plays the tools with tools.execution simulated: a checkpoint directory, or
    run:RUN or run:RUN@EPOCH of this root."""

    @property
    def model_in_words(self) -> str:
        """Return what a person reads of the model: its name."""
        return self.model


class MeasuredEndpoint(NamedEndpoint, BenchmarkConfig):
    """A model behind a chat endpoint; execution.benchmark says how genenv asks it."""

    section = "benchmark"

    attempt_seconds: float | None = Field(default=None, gt=0, le=86_400)
    """Longest time of one attempt of a model at `url`, waiting included; what takes longer has
    failed. None: no limit."""

    @property
    def model_in_words(self) -> str:
        """Return what a person reads of the model: its name, and where it is."""
        return f"{self.model_name} at {self.url}"


MEASURED = Alternatives(
    "benchmark", "models", {"model": MeasuredCheckpoint, "url": MeasuredEndpoint}
)

BenchmarkSection = Annotated[
    Annotated[NoMeasurement, NOTHING]
    | Annotated[MeasuredCheckpoint, by("model")]
    | Annotated[MeasuredEndpoint, by("url")],
    Discriminator(MEASURED.tag),
    BeforeValidator(MEASURED.checked),
]
"""The model that a run measures: the field that a person gives says which one it is."""
