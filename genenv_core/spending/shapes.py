"""Decides whether two stages are alike, so that one's seconds, tokens and memory predict the other.

A stage is like another one of its name when those fields are equal that decide what a unit of its
work takes. Seconds and tokens grow with the units. Fields that change results and not the work,
such as learning rates, may differ. Values are those of a resolved configuration, plain and nested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from genenv_core.config.arms import ARMS, Arm
from genenv_core.config.sections.rollout import RefillConfig, most_tasks
from genenv_core.config.stages import EPOCH_STAGES, LAST, STAGES
from genenv_core.training.updates.table import USUAL
from genenv_core.types import Policy

Values = Mapping[str, Any]

_BASE = ("domain", "compute")
_AGENT = ("models.agent", "bootstrap.agent")
_ENV = ("models.env", "bootstrap.env")
_PLAYED = ("rollout.max_tokens", "rollout.max_turns", "rollout.max_length", "tools.execution")


@dataclass(frozen=True, slots=True)
class WorkShape:
    """The fields that must be equal, and the amount of work of a configuration in units."""

    same: tuple[str, ...]
    units: Callable[[Values], float]


def _rollouts(values: Values) -> float:
    """Return the most attempts at new tasks; a refill may attempt fewer."""
    return _new_tasks(values) * values["rollout"]["n"]


def _new_tasks(values: Values) -> int:
    generation = values["generation"]
    tasks, candidates = generation["tasks"], generation["candidates"]
    return most_tasks(_refill(values), tasks=tasks, candidates=candidates)


def _refill(values: Values) -> RefillConfig:
    return RefillConfig(**values.get("refill", {}))  # older runs have no such section


def _written(values: Values) -> float:
    return values["data"]["set_tasks"] or values["generation"]["tasks"]


def _warm_starts(values: Values) -> float:
    made = [p for p in ("agent", "env") if values["models"][p] == "bootstrap"]
    return sum(values["bootstrap"][f"{p}_steps"] for p in made) or 1


def _taught(values: Values) -> float:
    given = [p for p in ("agent", "env") if values["models"][p] != "bootstrap"]
    return values["warm_start"]["steps"] * len(given)


def _heldout(values: Values) -> float:
    data, settings = values["data"], values["evaluation"]
    return (data["validation_tasks"] + data["test_tasks"]) * (
        settings["samples"] + settings["greedy"]
    )


def _update(policy: Policy, model: tuple[str, ...]) -> dict[str, WorkShape]:
    """Return the shape of the stage that trains a policy; its update says what it depends on."""
    kind = USUAL[policy]
    fields = ("training", kind.rows_field, *([kind.bound] if kind.bound else []), *kind.work)
    return {kind.stage: WorkShape((*_BASE, *model, *fields), kind.units)}


SHAPES: dict[str, WorkShape] = {
    "bootstrap": WorkShape(
        (
            *_BASE, *_AGENT, *_ENV, "bootstrap.batch_rows", "data.base_tasks",
            "data.validation_tasks", "data.test_tasks",
        ),
        _warm_starts,
    ),
    "warm_start": WorkShape(
        (
            *_BASE, *_AGENT, *_ENV, "training", "warm_start.batch_rows",
            "warm_start.micro_batch_rows", "warm_start.probe_rows", "generation.max_tokens",
            "rollout.max_tokens",
        ),
        _taught,
    ),
    "generate_tasks": WorkShape(
        (
            *_BASE, *_ENV, "generation.tasks_per_context", "generation.candidates",
            "generation.max_tokens", "teacher",
        ),
        _written,
    ),
    "rollout": WorkShape((*_BASE, *_AGENT, *_PLAYED, "mixture.new", "mixture.base"), _rollouts),
    # A stage of an epoch without a model is about its attempts.
    **{
        name: WorkShape(("domain",), _rollouts)
        for name in EPOCH_STAGES
        if not STAGES[name].model and name != LAST
    },
    **_update(Policy.AGENT, _AGENT),
    **_update(Policy.ENV, _ENV),
    "evaluate": WorkShape((*_BASE, *_AGENT, *_PLAYED), _heldout),
    LAST: WorkShape(("domain",), lambda values: 1),
}  # fmt: skip
"""By stage; runs that measure a model have no prediction."""


def likeness(stage: str, values: Values) -> tuple[Any, ...] | None:
    """Return a value that is equal for stages of a like shape; None where a field is missing.

    An older version of genenv may have had no such field.
    """
    try:
        found = [reduce(_inner, name.split("."), values) for name in SHAPES[stage].same]
        return (_trained(stage, values), *found)
    except (KeyError, TypeError, ValueError):
        return None


def units(stage: str, values: Values) -> float:
    """Return the amount of a stage's work, at least 1."""
    return max(float(SHAPES[stage].units(values)), 1.0)


def _inner(values: Any, name: str) -> Any:
    return values[name]


def surely_stands(stage: str, epoch: int, values: Values) -> bool:
    """Return whether the arm makes it certain that this stage reuses an earlier evaluation.

    An arm that does not train the agent evaluates it once, in epoch 0.
    """
    return stage == "evaluate" and epoch > 0 and not ARMS[Arm(values["arm"])].trains_agent


def _trained(stage: str, values: Values) -> bool | None:
    """Return whether the arm trains the policy of an update, None for another stage."""
    arm, policy = ARMS[Arm(values["arm"])], STAGES[stage].trains
    if policy is None:
        return None
    return arm.trains_agent if policy is Policy.AGENT else arm.trains_env
