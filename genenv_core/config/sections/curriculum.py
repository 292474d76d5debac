"""How hard tasks should be, and how pi_env writes them."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, Self

from pydantic import Field, model_validator

from genenv_core.config.sections.section import Section


class Level(StrEnum):
    """What a p_hat is of: a task, all tasks of one conditioning context, or the whole batch."""

    TASK = "task"
    GROUP = "group"
    BATCH = "batch"


class CurriculumConfig(Section):
    """The alpha-curriculum reward and the difficulty filter (GenEnv, arXiv 2512.19682)."""

    alpha: float = Field(default=0.5, ge=0, le=1)
    """Target success rate of the agent."""
    beta: float = Field(default=8.0, gt=0, le=1000)
    """Sharpness of R_env = exp(-beta (p_hat - alpha)^2)."""
    level: Level = Level.TASK
    """The p_hat that R_env and the filter of the environment update judge."""
    k_min: float = Field(default=0.4, ge=0, le=1)
    """Half-width of the difficulty band: excluded when |p_hat - alpha| > k_min. With n = 8, 0.4
    keeps 1 to 7 successes: the band drops what carries no signal, and R_env weighs the rest. A
    narrow band keeps few rows, and those by luck of the attempts."""
    least_n: int = Field(default=2, ge=1, le=1024)
    """Fewest attempts with a verdict that give a task a p_hat, where an environment or an engine
    failed in others; with fewer the task is an incomplete group, which no update uses. Above
    rollout.n: all."""
    track: float = Field(default=1.0, ge=0, le=2)
    """How far the target of the RWR weights moves against the error of pi_env's tasks: to alpha +
    track (alpha - their success rate), kept within 0.2 and 0.8. R_env, the band and reports keep
    alpha."""
    filter_agent: bool = False
    """Whether the band also guards the agent update (it always guards the environment update)."""


class GenerationConfig(Section):
    """How pi_env writes tasks."""

    tasks: int = Field(default=160, ge=1, le=100_000)
    """Tasks attempted an epoch; fewer when max_generations is reached first."""
    candidates: int = Field(default=3, ge=1, le=100)
    """Valid tasks that pi_env writes for each one attempted. Above 1, pi_agent attempts those whose
    success rate, as earlier attempts at like tasks predict it, is nearest to curriculum.alpha."""
    random_share: float = Field(default=0.1, ge=0, le=1)
    """Share of the attempted tasks that genenv draws by lot among all written: it shows what pi_env
    writes, and how good the prediction is."""
    choose_by: Literal["task", "family"] = "task"
    """task: pi_agent attempts those whose prediction is nearest to alpha. family: it attempts the
    nearest of each task family in turn, within the band of k_min, so that what pi_env seldom writes
    comes before more of what it mostly writes."""
    prediction_epochs: int = Field(default=2, ge=1, le=1000)
    """Epochs whose attempts the prediction learns from; older ones are of a weaker agent."""
    tasks_per_context: int = Field(default=4, ge=1, le=1000)
    """Generations conditioned on one context (one base task and the agent's history)."""
    shots: int = Field(default=0, ge=0, le=64)
    """Examples in pi_env's prompt, each a turn: a request to vary one base task, and the program of
    another as the answer. They are the same for a whole epoch, so the engine computes them once. A
    given model writes tasks with them before it has learned anything."""
    condition_on_agent: bool = True
    """Whether pi_env reads how the agent did at the tasks of the epoch before."""
    max_generations: int = Field(default=1440, ge=1, le=1_000_000)
    """Upper bound on generations an epoch, valid or not; at least tasks x candidates."""
    max_tokens: int = Field(default=32, ge=1, le=131_072)
    """Longest generation, in tokens."""
    temperature: float = Field(default=1.0, gt=0, le=2)
    """Sampling temperature of pi_env."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus of pi_env's sampling; 1 keeps the whole distribution."""
    structured: bool = False
    """Whether pi_env can only write what the domain's grammar allows; needs a domain that has one.
    Stored logprobs are then those of the constrained sampling."""
    guard: bool = True
    """Whether genenv refuses a task with a flaw in its certificate: one that judges nothing, gives
    its answer away, or succeeds by chance. It keeps the certificates either way."""
    history_epochs: int = Field(default=4, ge=0, le=10_000)
    """A task equal to one of this many last epochs is a duplicate; 0 looks at this batch only."""

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.max_generations < self.tasks * self.candidates:
            times = f" x generation.candidates {self.candidates}" if self.candidates > 1 else ""
            raise ValueError(
                f"generation.max_generations {self.max_generations} cannot yield "
                f"generation.tasks {self.tasks}{times}: raise the first or lower the second"
            )
        return self
