"""The names of the stages in the order of an epoch; light, so that `genenv status` may use them."""

from __future__ import annotations

from genenv_core.config.stages import STAGES

START_STAGES = ("bootstrap", "evaluate", "publish")
EPOCH_STAGES = STAGES[1:]
