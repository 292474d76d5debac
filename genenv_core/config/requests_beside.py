"""What a person fills in for a part of a run, or for several: an epoch, a stage, arms."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from genenv_core.config.arms import ARMS
from genenv_core.config.comparison import ABLATIONS, Budget, Measure
from genenv_core.config.request import Change, Preset, RootUri, RunName, optional
from genenv_core.config.sections.section import Request


class EpochRequest(Request):
    """One epoch of a run that was started before."""

    run_id: RunName
    """A run of this root, with every epoch before this one finished."""
    epoch: Annotated[int, Field(ge=1, le=100_000)] | SkipJsonSchema[None] = Field(
        default=None, json_schema_extra=optional
    )
    """Number of the epoch, from 1. Empty: the first that is not finished; after the last one, one
    more."""
    root: RootUri | SkipJsonSchema[None] = Field(default=None, json_schema_extra=optional)
    """The root that keeps all runs: an absolute directory. Empty: the root of `genenv up`."""


class StageRequest(Request):
    """One stage of one epoch of a run that was started before."""

    run_id: RunName
    """A run of this root, with every stage that this one reads finished."""
    epoch: int = Field(default=1, ge=0, le=100_000)
    """Number of the epoch; 0 is the start of the run, which has bootstrap and evaluate only."""
    root: RootUri | SkipJsonSchema[None] = Field(default=None, json_schema_extra=optional)
    """The root that keeps all runs: an absolute directory. Empty: the root of `genenv up`."""


_ARMS = (
    f"The first is compared with every other. An arm: {', '.join(ARMS)}; genenv without one of its "
    f"means: {', '.join(ABLATIONS)}; or a changed field, such as lambda=0, alpha=0.3, level=group, "
    "rollout.n=16."
)


class CompareRequest(Request):
    """Arms to play on the same seeds, and to compare."""

    preset: Preset = Preset.QUICKSTART
    """The configuration that every arm starts from."""
    arms: list[str] = Field(
        default=["genenv", "random", "static"], min_length=2, max_length=50, description=_ARMS
    )
    """Arms by the names of `ARMS` and `ABLATIONS`, or by a changed field."""
    seeds: int = Field(default=10, ge=1, le=1000)
    """Seeds of each arm, the unit of the statistics: ten for a claim, six for any decision."""
    first_seed: int = Field(default=0, ge=0, le=2**31 - 1001)
    """The first seed; the others follow it."""
    budget: Budget = Budget.ROLLOUTS
    """The budget at which two arms are compared: rollouts (attempts at tasks), steps (optimizer
    steps of both policies), or tokens (read and sampled to write and attempt tasks)."""
    measure: Measure | SkipJsonSchema[None] = Field(default=None, json_schema_extra=optional)
    """The measure of the gain on the test tasks. Empty: the probability of the answer where the
    domain has one, else sampled success."""
    changes: list[Change] = Field(default=[], max_length=200)
    """Changes for every arm, one field=value each, such as epochs=6."""
    root: RootUri | SkipJsonSchema[None] = Field(default=None, json_schema_extra=optional)
    """The root that keeps all runs: an absolute directory. Empty: the root of `genenv up`."""
