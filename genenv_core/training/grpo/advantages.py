"""The advantages of GRPO; `AgentUpdateKind.rule` names this module."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from genenv_core.algorithm.advantages import group_advantages
from genenv_core.config.sections.updates import AgentUpdateConfig, GrpoConfig
from genenv_core.training.updates.kind import Groups


def grpo_advantages(groups: Groups, *, scale: bool) -> list[list[float]]:
    """Return the advantages of GRPO, group by group, from the rewards of groups."""
    return [group_advantages(rewards, scale=scale) for rewards in groups]


def advantages(settings: GrpoConfig, _: AgentUpdateConfig) -> Callable[[Groups], Groups]:
    """Return a function from the rewards of all groups of an update to their advantages."""
    return partial(grpo_advantages, scale=settings.scale_rewards == "group")


def modules(_: AgentUpdateConfig) -> list[str]:
    """Return no further module: the algorithm is genenv's own."""
    return []
