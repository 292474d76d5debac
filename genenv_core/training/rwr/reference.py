"""The first policy's logprobs along the rows on the leash; its weights stay, so one pass is enough.

It stores the logprobs of the whole vocabulary where they are few. Where they are many, it stores
the output of the model's last layer, which is smaller by the ratio of the vocabulary to the hidden
units, and the model's own head computes the logprobs from it again. Head and input are the same, so
the numbers are, to the bit. It compares the first micro-batch; for a model that differs there, it
computes the whole model each time.
"""

# torch and transformers come without complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from transformers.modeling_outputs import BaseModelOutputWithPast

from genenv_core.training.policies.completions import completion_logits


class LeashReference:
    """The logprobs of a frozen model for micro-batches that come again and again.

    Args:
        model: returns the frozen model, or the policy, which the context `frozen` turns into
            the first one.
        frozen: returns the context of a forward pass.
        whole: whether to store logprobs of the whole vocabulary.
        sharded: whether several processes hold the model together. They compute it in step,
            head and all, so only logprobs can be stored.
    """

    def __init__(
        self,
        model: Callable[[], Any],
        frozen: Callable[[], AbstractContextManager[object]],
        *,
        whole: bool,
        sharded: bool,
    ) -> None:
        self._model, self._frozen = model, frozen
        self._whole, self._keeps_states = whole, not whole and not sharded
        self._logprobs: dict[int, Any] = {}
        self._states: dict[int, Any] = {}

    @torch.no_grad()
    def logprobs(self, batch: dict[str, Any]) -> Any:
        """Return the logprobs that predict the completions of a micro-batch, (tokens, V)."""
        index = batch["index"]
        if index in self._logprobs:
            return self._logprobs[index]
        with self._frozen():
            made = self._logits(batch).log_softmax(-1)
        if self._whole:
            self._logprobs[index] = made
        return made

    def _logits(self, batch: dict[str, Any]) -> Any:
        model, index = self._model(), batch["index"]
        if not self._keeps_states:
            return completion_logits(model, batch)
        if index in self._states:
            return _from_states(model, batch, self._states[index])
        with _last_states(model) as last:
            logits = completion_logits(model, batch)
        states = last[0][:, batch["inputs"]["logits_to_keep"]]  # a tensor as index copies
        if not self._states:
            self._keeps_states = torch.equal(_from_states(model, batch, states), logits)
        if self._keeps_states:
            self._states[index] = states
        return logits


def _body(model: Any) -> Any:
    """Return the layers of a model, adapters or not, below its head."""
    return getattr(model, "get_base_model", lambda: model)().base_model


@contextmanager
def _last_states(model: Any) -> Generator[list[Any]]:
    """Return a list to which each forward pass appends the output of the model's last layer."""
    seen: list[Any] = []

    def see(_: Any, __: Any, output: Any) -> None:
        seen.append(output.last_hidden_state)

    hook = _body(model).register_forward_hook(see)
    try:
        yield seen
    finally:
        hook.remove()


def _from_states(model: Any, batch: dict[str, Any], states: Any) -> Any:
    """Return the logits of a micro-batch, computed by the head from stored states."""
    body = _body(model)
    before = vars(body).get("forward")

    def given(*_: Any, **__: Any) -> BaseModelOutputWithPast:
        return BaseModelOutputWithPast(last_hidden_state=states)

    body.forward = given
    try:
        read = batch["inputs"] | {"logits_to_keep": 0}  # all of them
        return completion_logits(model, batch | {"inputs": read})
    finally:
        if before is None:
            del body.forward
        else:
            body.forward = before
