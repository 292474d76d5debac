"""How genenv measures a checkpoint, and the gates that may keep it from being published."""

from __future__ import annotations

from pydantic import Field

from genenv_core.config.sections.section import Section


class EvaluationConfig(Section):
    """Held-out evaluation after each epoch, with the same seeds in every epoch."""

    samples: int = Field(default=1, ge=1, le=64)
    """Sampled attempts at each held-out task, at the rollout temperature."""
    greedy: bool = True
    """Whether pi_agent also attempts each test task greedily."""


class GatesConfig(Section):
    """What closes the gate in front of a checkpoint; the last good one then stays current."""

    max_kl_env: float = Field(default=60.0, gt=0, le=1e6)
    """Largest KL of pi_env to the initial simulator, nats a sequence on fresh generations."""
    min_fidelity: float = Field(default=0.3, ge=0, le=1)
    """With tools.execution simulated: smallest mean fidelity of pi_env's answers in the place of
    the tools, 0 to 1 (docs/episodes.md). The domain's own code has 1, one that lies in all it says
    0; the default stops the second and lets weak simulators learn. Below it genenv publishes no new
    pi_env, and no pi_agent that learned from such an epoch; 0 switches the rule off."""
    min_entropy: float = Field(default=0.005, ge=0, le=100)
    """Smallest mean token entropy of pi_agent in its update, nats."""
    min_reward_std: float = Field(default=0.0, ge=0, le=1)
    """Smallest standard deviation of the rewards of an agent update."""
    max_validation_drop: float = Field(default=0.1, gt=0, le=1)
    """Largest drop of validation success below the current checkpoint's, absolute."""
