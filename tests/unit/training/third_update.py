"""A third algorithm of genenv for the agent: its request, its record, and its trainer.

The loss of a token is -advantage times the probability ratio, without clipping.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from genenv_core.training.requests import UpdateResult
from genenv_core.training.updates import grpo
from genenv_core.training.updates.grpo import GrpoRequest


class ThirdRequest(GrpoRequest):
    """One update, on the rows of `GrpoRequest`."""

    loss = "third"


UPDATE = replace(
    grpo.UPDATE, request=ThirdRequest, trainer=__name__, title="third update", measures=grpo.SEEN
)


def update(request: ThirdRequest, stop: Callable[[], bool]) -> UpdateResult:
    """Return the result of one update."""
    from genenv_core.training.grpo.batches import StoredRollouts
    from genenv_core.training.grpo.stored import RolloutTrainer, trainer_of
    from genenv_core.training.loop.update import carry_out

    class ThirdTrainer(RolloutTrainer):
        def _scales(self, inputs: dict[str, Any]) -> dict[str, Any]:
            return {"loss_scale": self.training.processes / inputs["step_tokens"].clamp(min=1)}

        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
            logprobs = self._logprobs(model, inputs, compute_entropy=True)
            ratio = (logprobs - inputs["old_per_token_logps"]).exp()
            mask = inputs["completion_mask"] * inputs["tool_mask"]
            loss = -(ratio * inputs["advantages"][:, None] * mask).sum() * inputs["loss_scale"]
            self._observe(inputs, loss.item())
            return loss

    return carry_out(request, stop, StoredRollouts.read, partial(trainer_of, ThirdTrainer))
