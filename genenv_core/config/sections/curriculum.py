"""How hard tasks should be, and how pi_env writes them."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from genenv_core.config.sections.section import Section


class Level(StrEnum):
    """Where p_hat is judged: a task, all tasks of one conditioning context, or the whole batch."""

    TASK = "task"
    GROUP = "group"
    BATCH = "batch"


class CurriculumConfig(Section):
    """The alpha-curriculum reward and the difficulty filter (GenEnv, arXiv 2512.19682)."""

    alpha: float = Field(default=0.5, ge=0, le=1)
    """Target success rate of the agent."""
    beta: float = Field(default=4.0, gt=0, le=1000)
    """Sharpness of R_env = exp(-beta (p_hat - alpha)^2)."""
    level: Level = Level.TASK
    """Where p_hat is judged for R_env and for the filter of the environment update."""
    k_min: float = Field(default=0.2, ge=0, le=1)
    """Half-width of the difficulty band: excluded when |p_hat - alpha| > k_min. With n = 8, 0.2
    keeps 3 to 5 successes; 0.25 would keep 6, which a task of true rate .8 gets too easily."""
    track: float = Field(default=0.0, ge=0, le=2)
    """Share of the epoch's error that moves the target of the RWR weights: alpha + track (alpha -
    p_hat of its new tasks), within .2 and .8. R_env, the band and reports stay with alpha."""
    filter_agent: bool = False
    """Whether the band also guards the agent update (it always guards the environment update)."""


class GenerationConfig(Section):
    """How pi_env writes tasks."""

    tasks: int = Field(default=64, ge=1, le=100_000)
    """Valid tasks wanted an epoch; fewer when max_generations is reached first."""
    tasks_per_context: int = Field(default=4, ge=1, le=1000)
    """Generations conditioned on one context (one base task and the agent's history)."""
    max_generations: int = Field(default=192, ge=1, le=1_000_000)
    """Upper bound on generations an epoch, valid or not; at least `tasks`."""
    max_tokens: int = Field(default=32, ge=1, le=131_072)
    """Longest generation, in tokens."""
    temperature: float = Field(default=1.0, gt=0, le=2)
    """Sampling temperature of pi_env."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus of pi_env's sampling; 1 keeps the whole distribution."""
    structured: bool = False
    """Whether pi_env can only write what the domain's grammar allows; needs engine vllm, and a
    domain that has one. Stored logprobs are then those of the constrained sampling."""
    history_epochs: int = Field(default=4, ge=0, le=10_000)
    """A task equal to one of this many last epochs is a duplicate; 0 looks at this batch only."""

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.max_generations < self.tasks:
            raise ValueError(
                f"generation.max_generations {self.max_generations} cannot yield "
                f"generation.tasks {self.tasks}: raise the first or lower the second"
            )
        return self
