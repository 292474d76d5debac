"""What the stages, the plan and the memory estimate know of one kind of update.

Each module beside this one describes one kind: its request, with the form of its rows, and
`UPDATE`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from genenv_core.config.sections.training import TrainingConfig
from genenv_core.config.sections.updates import AgentUpdateConfig, KlReference
from genenv_core.config.stages import STAGES
from genenv_core.training.requests import UpdateRequest

Groups = Sequence[Sequence[float]]
"""A number for each rollout, group by group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateKind:
    """One kind of update: its request, its trainer, its name, and what it needs of a device.

    Args:
        request: the class of its requests.
        trainer: the module whose `update(request, stop)` computes it. It is a name, because
            torch and TRL take ten seconds to load, and a run full of cache hits needs neither.
        title: its name in messages.
        stage: the stage that computes it; its section of the configuration has the settings.
        bound: the field that bounds the length of its rows; None: no field does.
        training: returns its own training settings, from those of the run.
        whole_logits: whether it has the logits of all completion tokens at once; else it
            computes its head tile by tile.
        capped: whether it stores weights, and logprobs of a reference, for a cap on a KL.
        kl: returns from its settings which checkpoint its KL is to; None: it has no KL.
        work: fields that decide what a unit of its work takes, beside the rows of a micro-batch
            and their bound.
        units: returns the amount of its work, from the nested values of a configuration.
        measures: its metrics beside grad_norm, with their meanings; the last value of each
            unless described otherwise. On a GPU all have liger_kernels (0/1).
    """

    request: type[UpdateRequest]
    trainer: str
    title: str
    stage: str
    bound: str | None
    measures: Mapping[str, str]
    training: Callable[[TrainingConfig], TrainingConfig] = lambda training: training
    whole_logits: bool = True
    capped: bool = False
    kl: Callable[[Any], KlReference | None] = lambda _: None
    work: tuple[str, ...] = ()
    units: Callable[[Mapping[str, Any]], float] = lambda _: 1

    @property
    def section(self) -> str:
        """Return the section of the configuration with its settings."""
        return STAGES[self.stage].settings

    @property
    def rows_field(self) -> str:
        """Return the field that bounds the rows of its micro-batches."""
        return f"{self.section}.micro_batch_rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentUpdateKind(UpdateKind):
    """An update of pi_agent on stored rollouts, by some algorithm.

    Args:
        rule: the module whose `advantages(settings, chosen)` returns a function from the
            rewards of all groups to advantages, and whose `modules(chosen)` returns the modules
            of foreign code. `settings` is section grpo, `chosen` agent_update. It is a name,
            because its code is in the keys of its own updates alone.
        asked: returns the fields of its request that not every update on stored rollouts has.
    """

    rule: str
    asked: Callable[[AgentUpdateConfig], dict[str, Any]] = lambda _: {}
