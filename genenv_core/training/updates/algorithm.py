"""An algorithm of one's own for the update of pi_agent: its protocol, and how genenv finds it.

It turns rewards into advantages, and gives the loss of a token. genenv does the rest: which
rollouts an update has, micro-batches that fit into memory, processes, adapters, shared rows, the KL
term, checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, Literal, Protocol

from genenv_core.config.sections.updates import AgentUpdateConfig, GrpoConfig
from genenv_core.errors import ConfigError, TrainingError, described
from genenv_core.importing import load
from genenv_core.machine.plugin_failures import failures_named
from genenv_core.plugins import ALGORITHMS, placed_point, point_of
from genenv_core.training.updates.kind import Groups

if TYPE_CHECKING:
    import torch

FIELD = "agent_update.algorithm"

TABLE = "genenv_core.training.updates.table"
"""The module that lists genenv's own algorithms. It is opened by name, so it is in
no key of a foreign one."""

MEANS = ("tokens", "rollouts")
"""What `AgentAlgorithm.mean_over` may be."""


@dataclass(frozen=True, slots=True)
class RolloutBatch:
    """Some rollouts of one optimizer step: B rows, which may be parts of groups, and T tokens.

    Args:
        logprobs: (B, T) of the completions' tokens under the current weights, with a gradient.
        old_logprobs: (B, T) under the policy that sampled them.
        advantages: (B,) the result of `advantages` for these rollouts.
        rewards: (B,) the rollouts' rewards.
        mask: (B, T) 1.0 where a token counts in the loss: pi_agent sampled it, and no setting
            leaves it out. Elsewhere the other tensors hold no meaning.
        groups: the ids of the rollouts' groups, B of them.
    """

    logprobs: torch.Tensor
    old_logprobs: torch.Tensor
    advantages: torch.Tensor
    rewards: torch.Tensor
    mask: torch.Tensor
    groups: tuple[str, ...]


class AgentAlgorithm(Protocol):
    """A loss on stored rollouts. It has no state, and draws no random numbers.

    genenv divides the sum of the tokens' losses in an optimizer step as `mean_over` says: by the
    `tokens` that count in the step, or by its `rollouts` with a verdict. `most_passes` is the
    largest grpo.passes for which the loss is right; None: any number.
    """

    mean_over: Literal["tokens", "rollouts"]
    most_passes: int | None

    def advantages(self, groups: Groups) -> Groups:
        """Return the advantage of each rollout, from the rewards of all groups of an update.

        An attempt that the environment or an engine broke has no reward, and is not among the
        rollouts.
        """
        ...

    def losses(self, batch: RolloutBatch) -> torch.Tensor:
        """Return the loss of each token, (B, T); each row's from that row alone.

        Memory decides which other rows are in a batch.
        """
        ...


def is_foreign(chosen: AgentUpdateConfig) -> bool:
    """Return whether the chosen algorithm is none of genenv's own, but a class of somebody else."""
    return chosen.algorithm not in _of_genenv()


def get_algorithm(name: str, options: Mapping[str, Any]) -> AgentAlgorithm:
    """Return an algorithm of one's own; genenv calls its class with the options.

    Raises ConfigError when the name leads nowhere, the class does not load, or it refuses options.
    """
    point = _point(name)
    with failures_named(FIELD, name, point):
        made: AgentAlgorithm = point.load()(dict(options))
        mean_over, most = made.mean_over, made.most_passes
    if mean_over not in MEANS:
        raise ConfigError(f"{FIELD} {name!r}: mean_over is {mean_over!r}, not {' or '.join(MEANS)}")
    if most is not None and most < 1:
        raise ConfigError(f"{FIELD} {name!r}: most_passes is {most!r}, not None or 1 and more")
    return made


def advantages(_: GrpoConfig, chosen: AgentUpdateConfig) -> Callable[[Groups], Groups]:
    """Return a function from the rewards of all groups of an update to their advantages."""
    made = get_algorithm(chosen.algorithm, chosen.options)
    return partial(advantages_of, chosen.algorithm, made)


def modules(chosen: AgentUpdateConfig) -> list[str]:
    """Return the modules whose code an algorithm is: of its class, and of what made it."""
    made = get_algorithm(chosen.algorithm, chosen.options)
    return [type(made).__module__, _point(chosen.algorithm).module]


def check_passes(name: str, algorithm: AgentAlgorithm, passes: int) -> None:
    """Raise ConfigError where an update would train rollouts more often than the loss allows."""
    most = algorithm.most_passes
    if most is not None and passes > most:
        raise ConfigError(
            f"grpo.passes is {passes}, and {FIELD} {name!r} is right for {most} at most "
            f"(its most_passes): set grpo.passes={most}"
        )


def advantages_of(name: str, algorithm: AgentAlgorithm, groups: Groups) -> list[list[float]]:
    """Return the advantage of each rollout; raises TrainingError unless each has a finite one."""
    try:
        made = [[float(one) for one in group] for group in algorithm.advantages(groups)]
    except Exception as error:
        raise TrainingError(
            f"{FIELD} {name!r}: advantages failed with {described(error)}"
        ) from error
    sizes = [len(group) for group in groups]
    if [len(group) for group in made] != sizes:
        raise TrainingError(
            f"{FIELD} {name!r}: advantages returned groups of {[len(g) for g in made][:5]} numbers "
            f"for groups of {sizes[:5]} rewards: return one number for each reward"
        )
    for rewards, group in zip(groups, made, strict=True):
        if not all(map(math.isfinite, group)):
            raise TrainingError(
                f"{FIELD} {name!r}: advantages returned {group} for the rewards {list(rewards)}: "
                "return finite numbers"
            )
    return made


def _point(name: str) -> EntryPoint:
    if ":" in name:
        return placed_point(ALGORITHMS, name, FIELD, "my_algorithm.py:Mine")
    return point_of(
        ALGORITHMS,
        name,
        FIELD,
        "; a class of your own is named by its place: my_algorithm.py:Mine or package.module:Mine",
        also=_of_genenv(),
    )


def _of_genenv() -> tuple[str, ...]:
    return tuple(kind.request.loss for kind in load(TABLE).OF_AGENT)
