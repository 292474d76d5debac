"""A model that is measured on a benchmark. The benchmark is the run's domain."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from genenv_core.config.sections.endpoint import check_endpoint
from genenv_core.config.sections.section import Section


class BenchmarkConfig(Section):
    """The model that a run measures: a checkpoint (`model`) or an endpoint (`url`).

    Such a run has one stage, `benchmark`, and no epochs. `rollout` bounds its attempts.
    """

    model: str | None = Field(default=None, min_length=1)
    """A Hugging Face checkpoint directory, run:RUN or run:RUN@EPOCH of this root, or
    models:/NAME/VERSION in MLflow; sampled by compute.engine."""
    url: str | None = Field(default=None, min_length=1)
    """An OpenAI-compatible endpoint, such as http://host:8000/v1; /chat/completions is added."""
    model_name: str | None = Field(default=None, min_length=1)
    """Name of the model at `url`."""
    request: dict[str, Any] = Field(default_factory=dict[str, Any])
    """More fields of each request to `url`; null leaves one of genenv's out. An endpoint that knows
    no max_tokens takes {max_tokens: null, max_completion_tokens: 1024}."""
    simulator: str | None = Field(default=None, min_length=1)
    """The pi_env that plays the tools with tools.execution simulated: a checkpoint directory, or
    run:RUN or run:RUN@EPOCH of this root."""
    temperature: float = Field(default=0.0, ge=0, le=2)
    """Sampling temperature; 0 is greedy."""
    items: int | None = Field(default=None, ge=1, le=1_000_000)
    """Only the first so many items of each category, level or split; None: all. What was left out
    stands in the result."""

    @property
    def given(self) -> bool:
        """Return whether there is a model to measure."""
        return self.model is not None or self.url is not None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.model is not None and self.url is not None:
            raise ValueError("benchmark.model and benchmark.url are two models: remove one of them")
        check_endpoint("benchmark", self.url, self.model_name, self.request)
        return self
