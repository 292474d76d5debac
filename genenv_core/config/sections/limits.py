"""What a run may spend, and what machines and tokens cost.

Both may change at any time: no stage key holds them, and a run with other ones is the same run.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from genenv_core.config.sections.section import Section
from genenv_core.config.stages import STAGES

Price = Annotated[float, Field(ge=0, le=1e9)]


class LimitsConfig(Section):
    """What a run may spend on the stages that it computes itself; reused ones cost nothing.

    A run that has reached a limit ends before the next stage that it would compute. The next
    command with a higher limit goes on.
    """

    seconds: float | None = Field(default=None, gt=0, le=1e12)
    """Seconds that the stages may take, added up: two that run at the same time for 10 s count 20.
    Left out: no limit."""
    tokens: int | None = Field(default=None, ge=1, le=10**15)
    """Tokens that stages read and sample, and that updates draw, each pass counted once. Left
    out: no limit."""
    cost: float | None = Field(default=None, gt=0, le=1e12)
    """What the stages may cost by `prices`, in the currency of these. Left out: no limit."""

    @property
    def given(self) -> dict[str, float]:
        """Return the limits that are set, by name."""
        found = {"seconds": self.seconds, "tokens": self.tokens, "cost": self.cost}
        return {name: value for name, value in found.items() if value is not None}


class PricesConfig(Section):
    """What an hour of a stage and a million tokens cost, in a currency of your own."""

    hour: Price = 0.0
    """Price of an hour of a stage."""
    hours: dict[str, Price] = Field(default_factory=dict[str, float])
    """Price of an hour of single stages, such as {rollout: 12.5, grpo_update: 40}; others cost
    `hour`."""
    million_sampled: Price = 0.0
    """Price of a million tokens that generate_tasks, rollout and evaluate read and sample."""
    million_trained: Price = 0.0
    """Price of a million tokens that updates draw."""
    million_endpoint: Price = 0.0
    """Price of a million tokens that the endpoint of a teacher reads and samples."""

    @property
    def given(self) -> bool:
        """Return whether anything has a price."""
        return any((self.hour, *self.hours.values(), *self._millions))

    @property
    def _millions(self) -> tuple[float, float, float]:
        return self.million_sampled, self.million_trained, self.million_endpoint

    @field_validator("hours")
    @classmethod
    def _stages(cls, hours: dict[str, float]) -> dict[str, float]:
        for name in hours:
            if name not in STAGES:
                raise ValueError(f"hours {name!r} is no stage of {', '.join(STAGES)}")
        return hours
