"""Benchmarks: how a run measures a model on one, and those that measure a run's agent."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, field_validator, model_validator

from genenv_core.config.sections.section import Section
from genenv_core.errors import ConfigError
from genenv_core.plugins import BENCHMARKS, point_of

OF_RUN = "run:"
"""Begins the name of a model that a run of the same root made."""


class BenchmarkConfig(Section):
    """How genenv measures a model, a checkpoint or one behind an endpoint.

    Such a run has one stage, `benchmark`, and no epochs. `rollout` bounds its attempts.
    """

    given: ClassVar[bool] = True

    temperature: float = Field(default=0.0, ge=0, le=2)
    """Sampling temperature; 0 is greedy."""
    items: int | None = Field(default=None, ge=1, le=1_000_000)
    """Only the first N items of each category, level or split; None: all. The result counts those
    that it leaves out."""
    categories: tuple[str, ...] = ()
    """Only the items of these categories, levels or splits, such as ["lv1 calls", "lv2 calls"] of
    api_bank; (): all."""
    draw: int | None = Field(default=None, ge=1, le=1_000_000)
    """Only so many items of all categories together, drawn at random by the seed; None: all. Equal
    seeds draw equal items for every model."""
    precision: float | None = Field(default=None, ge=0.005, le=0.5)
    """Items in random order, by the seed, until the 95 % interval of the headline is at most twice
    as wide as this, as a share of all points: 0.05 is about +-5 of 100; None: all items."""

    certify_base: int | None = Field(default=None, ge=0, le=100_000)
    """Instead of a benchmark, certify a task set: so many base tasks of any domain, or all tasks of
    a folder that holds its own. `genenv certify --model` sets it; None: measure a benchmark."""
    certify_heldout: int | None = Field(default=None, ge=0, le=100_000)
    """Held-out tasks to certify beside the base tasks; None: measure a benchmark."""

    @property
    def certifies(self) -> bool:
        """Return whether a task set is certified, not a benchmark measured."""
        return self.certify_base is not None or self.certify_heldout is not None

    @model_validator(mode="after")
    def _chosen(self) -> Self:
        if self.items is not None and self.draw is not None:
            raise ValueError(
                "benchmark.items takes the first items of each category and benchmark.draw some at "
                "random: remove one of them"
            )
        if self.items is not None and self.precision is not None:
            raise ValueError(
                "benchmark.items takes the first items of each category and benchmark.precision "
                "items at random: give benchmark.draw as the most in place of benchmark.items"
            )
        if self.certifies and not (self.certify_base or self.certify_heldout):
            raise ValueError(
                "benchmark.certify_base and benchmark.certify_heldout ask for no task: set one of "
                "them above 0"
            )
        for field in ("categories", "draw", "precision") if self.certifies else ():
            if getattr(self, field):
                raise ValueError(
                    f"benchmark.{field} is of benchmarks, and benchmark.certify_base certifies a "
                    "task set: remove it; benchmark.items takes the first tasks of each set"
                )
        return self


class MeasureConfig(Section):
    """Benchmarks that measure the agent of a run, as `genenv eval --model run:RUN` does.

    Each is a run of its own after an epoch, so that nothing here changes what is trained.
    """

    benchmarks: tuple[str, ...] = ()
    """Names of benchmarks, such as [bfcl, bamboogle]."""
    every: int | None = Field(default=None, ge=1, le=100_000)
    """Epochs between two measurements; the last epoch is always measured. None: only that one."""
    data: str | None = Field(default=None, min_length=1)
    """The folder above the benchmarks' downloads. None: GENENV_BENCHMARKS."""
    samples: int = Field(default=1, ge=1, le=1024)
    """Attempts at each item."""
    items: int | None = Field(default=None, ge=1, le=1_000_000)
    """Only the first so many items of each category, level or split; None: all."""

    @field_validator("benchmarks")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            try:
                point_of(BENCHMARKS, name, "benchmarks")
            except ConfigError as error:
                raise ValueError(str(error)) from error
        if len(set(names)) < len(names):
            raise ValueError(f"benchmarks {', '.join(names)}: one of them stands twice, remove it")
        return names
