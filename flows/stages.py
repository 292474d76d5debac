"""The names of the stages in the order of an epoch; light, so that `genenv status` may use them."""

from __future__ import annotations

START_STAGES = ("bootstrap", "evaluate", "publish")
EPOCH_STAGES = (
    "generate_tasks",
    "rollout",
    "score",
    "filter",
    "pool",
    "grpo_update",
    "rwr_update",
    "evaluate",
    "publish",
)
