"""The stages of a run, by name."""

from __future__ import annotations

from typing import Literal, get_args

StageName = Literal[
    "bootstrap",
    "generate_tasks",
    "rollout",
    "score",
    "filter",
    "pool",
    "grpo_update",
    "rwr_update",
    "evaluate",
    "publish",
]
STAGES: tuple[StageName, ...] = get_args(StageName)
"""Every stage, in the order of a run."""
