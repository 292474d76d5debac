"""An update of pi_agent on stored rollouts by a loss of one's own (`agent_update.algorithm`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from genenv_core.config.sections.updates import AgentUpdateConfig
from genenv_core.training.updates import grpo
from genenv_core.training.updates.grpo import GrpoRequest


class OwnRequest(GrpoRequest):
    """One update of pi_agent by an algorithm of one's own, on the rows of `GrpoRequest`.

    `algorithm` and `options` are those of section agent_update. The section grpo has the settings
    of the loop.
    """

    loss = "own"

    algorithm: str
    options: dict[str, Any]

    @property
    def what(self) -> str:
        return f"update of pi_{self.policy.value} by {self.algorithm} from {self.checkpoint}"


def _asked(chosen: AgentUpdateConfig) -> dict[str, Any]:
    return {"algorithm": chosen.algorithm, "options": chosen.options}


UPDATE = replace(
    grpo.UPDATE,
    request=OwnRequest,
    trainer="genenv_core.training.own.trainer",
    title="agent update",
    measures=grpo.SEEN,
    rule="genenv_core.training.updates.algorithm",
    asked=_asked,
)
