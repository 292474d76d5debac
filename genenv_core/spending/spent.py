"""Adds up what stages spent and what that costs, and finds the limits that a run has reached.

Only the seconds and tokens in the history of a run count. A reused stage costs nothing. An attempt
that failed or was interrupted costs its seconds, a killed one nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.limits import LimitsConfig
from genenv_core.config.sections.unions.teacher import EndpointTeacher
from genenv_core.config.stages import STAGES
from genenv_core.record import Record
from genenv_core.storage.records.runs import StageAttempt
from schemas.enums import StageState

HOUR_S = 3600.0
MILLION = 1e6


class Spent(Record):
    """Seconds of stages, tokens, and the price of both in the currency of `prices`."""

    seconds: float = 0.0
    tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        """Return the sum of both."""
        return Spent(
            seconds=self.seconds + other.seconds,
            tokens=self.tokens + other.tokens,
            cost=self.cost + other.cost,
        )


class Reached(Record):
    """A limit that a run has reached: its name, its value, and the run's spending."""

    limit: str
    value: float
    spent: float

    def __str__(self) -> str:
        """Return the limit and the spending as a phrase."""
        return (
            f"limits.{self.limit} {amount(self.value)} is reached, {amount(self.spent)} are spent"
        )

    @property
    def higher(self) -> float:
        """Return a limit that lets the run go on: twice what counts, rounded up to two digits."""
        twice = 2 * max(self.value, self.spent)
        unit = 10.0 ** (math.floor(math.log10(twice)) - 1)
        return float(f"{math.ceil(twice / unit - 1e-9) * unit:.2g}")


def amount(value: float) -> str:
    """Return a number as people write it: whole with commas, small ones with four digits."""
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}"


def plain(value: float) -> str:
    """Return a number as a configuration takes it: 43000, 0.25."""
    return f"{value:.0f}" if value == int(value) else f"{value:.10g}"


def of_stage(stage: str, seconds: float, tokens: int, config: RunConfig) -> Spent:
    """Return what a stage spent, priced by the table of a configuration."""
    prices = config.prices
    if STAGES[stage].trains:
        million = prices.million_trained
    elif stage == "generate_tasks" and isinstance(config.teacher, EndpointTeacher):
        million = prices.million_endpoint
    else:
        million = prices.million_sampled
    hour = prices.hours.get(stage, prices.hour)
    cost = hour * seconds / HOUR_S + million * tokens / MILLION
    return Spent(seconds=seconds, tokens=tokens, cost=cost)


def spent_on(attempts: Iterable[StageAttempt], config: RunConfig) -> Spent:
    """Return what attempts at stages spent; those that reused an output spent nothing."""
    total = Spent()
    for one in attempts:
        if one.state is not StageState.CACHED:
            total += of_stage(one.stage, one.seconds or 0.0, one.tokens or 0, config)
    return total


def reached(spent: Spent, limits: LimitsConfig) -> tuple[Reached, ...]:
    """Return the limits that the spending has reached or exceeded."""
    return tuple(
        Reached(limit=name, value=value, spent=getattr(spent, name))
        for name, value in limits.given.items()
        if getattr(spent, name) >= value
    )
