"""One kind of update, as whatever serves all of them sees it.

Each module beside this one has one: its request, with the form of its rows, and its `UPDATE`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from genenv_core.config.sections.training import TrainingConfig
from genenv_core.training.requests import UpdateRequest


@dataclass(frozen=True, slots=True)
class UpdateKind:
    """What an update is asked with, computed by, called, and what it needs of a device.

    Args:
        request: what it is asked with.
        trainer: the module whose `update(request, stop)` computes it. By name: torch and TRL take
            ten seconds to load, and a run full of cache hits needs neither.
        title: what messages call it.
        section: the section of the configuration with its settings.
        bound: the field that bounds the length of its rows; None: they are as long as they are.
        training: returns its own training settings, made of those of the run.
        whole_logits: whether it has the logits of all completion tokens at once; else it computes
            its head tile by tile.
        capped: whether it keeps weights, and logprobs of a reference, for a cap on a KL.
        measures: the metrics that it reports beside grad_norm, with their meanings; the last value
            of each unless named otherwise. On a GPU all have liger_kernels (0/1).
    """

    request: type[UpdateRequest]
    trainer: str
    title: str
    section: str
    bound: str | None
    measures: Mapping[str, str]
    training: Callable[[TrainingConfig], TrainingConfig] = lambda training: training
    whole_logits: bool = True
    capped: bool = False
