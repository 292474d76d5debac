"""The kinds of updates by their losses, which one a run uses, and how this process computes one."""

from __future__ import annotations

from collections.abc import Callable

from genenv_core.config.sections.updates import AgentUpdateConfig
from genenv_core.importing import load
from genenv_core.training.requests import UpdateRequest, UpdateResult
from genenv_core.training.updates import grpo, own, rwr, warm_start
from genenv_core.training.updates.kind import AgentUpdateKind, UpdateKind
from genenv_core.types import Policy

OF_AGENT = (grpo.UPDATE,)
"""genenv's own updates of pi_agent, the usual one first; `agent_update.algorithm` names their
losses."""

_ALL: tuple[UpdateKind, ...] = (*OF_AGENT, rwr.UPDATE, warm_start.UPDATE, own.UPDATE)

UPDATES = {kind.request.loss: kind for kind in _ALL}

USUAL: dict[Policy, UpdateKind] = {Policy.AGENT: OF_AGENT[0], Policy.ENV: rwr.UPDATE}
"""The update of each policy where `agent_update` is not set."""


def agent_kind(chosen: AgentUpdateConfig) -> AgentUpdateKind:
    """Return the update of pi_agent by an algorithm: genenv's of that name, else one's own."""
    named = (kind for kind in OF_AGENT if kind.request.loss == chosen.algorithm)
    return next(named, own.UPDATE)


def run_update(request: UpdateRequest, stop: Callable[[], bool] = lambda: False) -> UpdateResult:
    """Compute an update in this process, and return its result.

    The update saves the policy in `request.output`. It calls `stop` after each optimizer step; True
    ends it. On CPUs, updates are deterministic under seed and thread count. A process computes one
    at a time. Raises `TrainingError` when it cannot compute, `NumericalError` on NaN or inf, and
    `Stopped`.
    """
    return load(UPDATES[request.loss].trainer).update(request, stop)
