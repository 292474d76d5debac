"""Chooses the arithmetic in which a stage scores tokens again: that of the configured training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genenv_core.engines.transformers.scoring import ScoringArithmetic

SCORING_FIELDS = ("training.device", "training.precision")
"""Fields that a stage which scores tokens reads beside `compute.threads`."""


def arithmetic_of(config: Any) -> ScoringArithmetic:
    """Return the arithmetic of a configuration, or of a stage's view of one."""
    from genenv_core.engines.transformers.scoring import ScoringArithmetic  # loads torch

    training = config.training
    return ScoringArithmetic(config.compute.threads, training.device, training.precision)
