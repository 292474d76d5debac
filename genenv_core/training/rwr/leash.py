"""The KL cap of pi_env's update: measures the KL after every step, and never stops without a note.

KL is that of the current weights to pi_env^0, in nats a sequence, along the rows on the leash.

- `pull`: a step that starts above the cap drops the likelihood term and follows the KL alone, until
  the KL is under the cap again. Each switch drops Adam's moments, because they belong to the other
  objective. An update that still ends above the cap goes back to its last state under it.
- `roll_back`: the first state above the cap ends the update, which goes back to its last state
  under it. Until a state was under the cap there is no such state: steps pull.
- No state under the cap at all: the update returns the state with the lowest KL.
- An update that went back to its own start has learned nothing, and the next one would start at the
  same edge: the cap would freeze the policy for good. So the weights move a little all the same:
  down the KL gradient, which makes room, or (at pi_env^0 itself, where the KL has no slope) a
  fraction of the way that crossed the cap.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from transformers import TrainerCallback

from genenv_core.config.sections.updates import RwrConfig
from genenv_core.training.policies.shards import local, trained
from schemas.enums import UpdateAction

_FRACTIONS = (1.0, 0.25, 0.0625, 0.015625)
"""Step lengths to try, longest first, when an update would otherwise return its own start."""

Weights = dict[str, torch.Tensor]
"""This process's part of the trained weights, by parameter name."""


class MeasuresKl(Protocol):
    """An update that measures its KL; all processes call these methods at the same time."""

    model: Any

    def measure_kl(self) -> float:
        """Return the KL of the current weights, nats a sequence; equal in every process."""
        ...

    def kl_gradient(self) -> Weights:
        """Return this process's part of the gradient of that KL."""
        ...


class Leash(TrainerCallback):
    """Watches the KL through an update; `pulling` says which terms the loss follows."""

    def __init__(self, trainer: MeasuresKl, settings: RwrConfig) -> None:
        self._trainer = trainer
        self._cap, self._stops = settings.kl_cap, settings.kl_cap_action == "roll_back"
        self._rate = settings.learning_rate
        self.kl = self._start_kl = 0.0
        self.hits = self.pulls = 0
        self.pulling = self.rolled_back = self._was_under = False
        self.kept: Weights = {}
        """The weights to which an update above the cap goes back."""
        self._kept_kl, self._kept_step = 0.0, 0
        self._step, self._crossed_kl, self._moved = 0, 0.0, False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure the KL of the start; a resumed update has it from its checkpoint."""
        if state.global_step == 0:
            self._observe(step=0)
            self._start_kl = self.kl

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure the new weights; decide which terms the next step follows, or end the update."""
        self.pulls += self.pulling
        before = self.pulling
        self._observe(step=state.global_step)
        if self.pulling and self._stops and self._was_under:
            control.should_training_stop = True
        elif self.pulling is not before:
            kwargs["optimizer"].state.clear()

    def _observe(self, step: int) -> None:
        self.kl, self._step = self._trainer.measure_kl(), step
        self.pulling = self.kl > self._cap
        self.hits += self.pulling
        under = not self.pulling
        if under or step == 0 or (not self._was_under and self.kl < self._kept_kl):
            # One copy of the weights: of the last state under the cap, or of the lowest KL.
            self.kept, self._kept_kl, self._kept_step = self._copy(), self.kl, step
        self._was_under |= under

    def counters(self) -> dict[str, Any]:
        """Return what a resumed process needs beside the weights in `kept`."""
        return {
            "kl": self.kl,
            "start_kl": self._start_kl,
            "hits": self.hits,
            "pulls": self.pulls,
            "pulling": self.pulling,
            "was_under": self._was_under,
            "kept_kl": self._kept_kl,
            "kept_step": self._kept_step,
            "step": self._step,
        }

    def restore(self, counters: dict[str, Any], kept: Weights) -> None:
        """Continue from these `counters` and `kept`."""
        self.kl, self._start_kl = counters["kl"], counters["start_kl"]
        self.hits, self.pulls = counters["hits"], counters["pulls"]
        self.pulling, self._was_under = counters["pulling"], counters["was_under"]
        self._kept_kl, self._kept_step = counters["kept_kl"], counters["kept_step"]
        self._step = counters["step"]
        named = trained(self._trainer.model).items()
        self.kept = {name: kept[name].to(parameter.device) for name, parameter in named}

    def settle(self) -> None:
        """Put the model into the state that the update ends on; call once, after the last step."""
        if not self.pulling or self._kept_step == self._step:
            return
        self.rolled_back, self._crossed_kl = True, self.kl
        crossed = self._copy()
        self._write(self.kept)
        self.kl = self._kept_kl
        if self._kept_step == 0:
            self._leave_start(crossed, self._trainer.kl_gradient())

    def _leave_start(self, crossed: Weights, gradient: Weights) -> None:
        # Each direction takes the place of what it is made of: these are copies of the weights.
        for slope in gradient.values():
            slope.sign_().mul_(-self._rate)  # the first step that a fresh Adam takes
        if self._goes(gradient, self._kept_kl):
            return
        gradient.clear()
        for name, start in self.kept.items():
            crossed[name].sub_(start)
        if self._goes(crossed, self._cap):
            return
        self._write(self.kept)
        self.kl = self._kept_kl

    def _goes(self, direction: Weights, bound: float) -> bool:
        """Move a fraction of the way in a direction; return whether one has a KL below `bound`."""
        for fraction in _FRACTIONS:
            self._write(self.kept, direction, fraction)
            self.kl = self._trainer.measure_kl()
            if self.kl < bound:
                self._moved = True
                return True
        return False

    def _copy(self) -> Weights:
        named = trained(self._trainer.model).items()
        return {name: local(p.detach()).clone() for name, p in named}

    @torch.no_grad()
    def _write(self, weights: Weights, direction: Weights | None = None, by: float = 0.0) -> None:
        for name, parameter in trained(self._trainer.model).items():
            own = local(parameter)
            own.copy_(weights[name])
            if direction is not None and name in direction:
                own.add_(direction[name], alpha=by)

    @property
    def action(self) -> UpdateAction:
        """What the update did, in one word."""
        if self.rolled_back:
            return UpdateAction.ROLLED_BACK
        return UpdateAction.PULLED if self.pulls else UpdateAction.UPDATED

    @property
    def note(self) -> str:
        """What the cap did, in a sentence; '' when it did nothing."""
        cap = f"kl_cap {self._cap:g}"
        if self.rolled_back:
            place = f"step {self._kept_step}" if self._kept_step else "the start"
            moved = ", then moved off it" if self._moved else ""
            return (
                f"KL {self._crossed_kl:.4g} above {cap}: rolled back to {place} "
                f"(KL {self._kept_kl:.4g}){moved}; KL now {self.kl:.4g}"
            )
        if self.pulls:
            still = ", still above it" if self.pulling else ""
            return (
                f"{self.pulls} step(s) followed the KL alone, above {cap}: "
                f"KL {self._start_kl:.4g} at the start, {self.kl:.4g} now{still}"
            )
        return ""
