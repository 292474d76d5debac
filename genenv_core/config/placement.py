"""Which stages are computed on which work pool."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from genenv_core.config.section import Section
from genenv_core.config.stages import STAGES

INLINE = "inline"
"""The placement of a stage that is computed in the process of its flow."""

Place = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=63)]


class PlacementConfig(Section):
    """Where each stage is computed: `inline`, the flow's own process, or the name of a Prefect work
    pool. It changes no result, so it is in no stage key; a pool's processes need the same code, the
    same libraries and the same root as the flow."""

    bootstrap: Place = INLINE
    """Models and base data."""
    generate_tasks: Place = INLINE
    """pi_env writes tasks."""
    rollout: Place = INLINE
    """pi_agent attempts them."""
    score: Place = INLINE
    """Rewards; needs no accelerator."""
    filter: Place = INLINE
    """The difficulty band; needs no accelerator."""
    pool: Place = INLINE
    """Appending to D_train and D_env; needs no accelerator."""
    grpo_update: Place = INLINE
    """The update of pi_agent."""
    rwr_update: Place = INLINE
    """The update of pi_env."""
    evaluate: Place = INLINE
    """Held-out metrics."""
    publish: Place = INLINE
    """Gates and the epoch's summary; needs no accelerator. MLflow is always told by the flow."""
    poll_seconds: float = Field(default=2.0, ge=0.1, le=60)
    """Time between two looks at a stage on a pool."""
    start_seconds: float = Field(default=1800.0, ge=1, le=604_800)
    """Longest wait for a pool to begin with a stage (a free worker, a node, an image); after it the
    stage fails with what it was waiting for."""
    lost_seconds: float = Field(default=300.0, ge=1, le=86_400)
    """How long a begun stage may show no sign of life, and how long the Prefect API may not answer,
    before the stage counts as lost."""

    def pools(self) -> dict[str, str]:
        """Return stage -> work pool of the stages that are not inline."""
        known = {name: getattr(self, name) for name in STAGES}
        return {name: place for name, place in known.items() if place != INLINE}
