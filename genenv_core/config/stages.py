"""The one list of the stages of a run; all other modules read it."""

from __future__ import annotations

from dataclasses import dataclass

from genenv_core.types import Policy

MEASURES = "benchmark"
"""The one stage of a run that measures a model."""


WARM = "warm_start"
"""The stage between the first one and `evaluate` of epoch 0, in runs that warm given models up."""

WARM_STARTS = "warm_starts"
"""Name of a fact of stage bootstrap: policy -> what its warm start reached. Where given models have
a warm start, the stage `WARM` has the fact instead, for all policies."""


@dataclass(frozen=True, slots=True)
class StageEntry:
    """One stage: its name, which is also its module in `tasks`, and how it is shown and run.

    `does` describes it; `column` is its title in a grid of ten stages on 80 characters. `model`
    says that it runs a model, so it may want a GPU; a person can start such a stage of an epoch
    alone. `samples` says that it asks the engine for completions. `trains` is the policy that it
    updates; `settings` is the section of the configuration for its optimizer steps. Epoch 0 has the
    stages `at_start`, and in some runs `WARM`; later epochs have those `in_epochs`; a run that
    measures a model has `MEASURES` alone.
    """

    name: str
    column: str
    does: str
    model: bool = False
    samples: bool = False
    trains: Policy | None = None
    settings: str = ""
    at_start: bool = False
    in_epochs: bool = True

    @property
    def alone(self) -> bool:
        """Return whether a person can start it alone, for an epoch of a run."""
        return self.model and self.name != MEASURES


STAGES: dict[str, StageEntry] = {
    entry.name: entry
    for entry in (
        StageEntry(
            "bootstrap",
            "boot",
            "base tasks, held-out tasks, and the first two checkpoints",
            model=True,
            at_start=True,
            in_epochs=False,
        ),
        StageEntry(
            WARM,
            "warm",
            "a few supervised steps of given models, where warm_start.steps is set",
            model=True,
            samples=True,
            settings="warm_start",
            in_epochs=False,
        ),
        StageEntry("generate_tasks", "tasks", "pi_env writes tasks", model=True, samples=True),
        StageEntry(
            "rollout", "roll", "pi_agent attempts each task n times", model=True, samples=True
        ),
        StageEntry("score", "score", "rewards"),
        StageEntry("filter", "filter", "the difficulty band"),
        StageEntry("pool", "pool", "appending to D_train and D_env"),
        StageEntry(
            "grpo_update",
            "grpo",
            "GRPO of pi_agent on stored rollouts",
            model=True,
            trains=Policy.AGENT,
            settings="grpo",
        ),
        StageEntry(
            "rwr_update",
            "rwr",
            "reward-weighted regression of pi_env",
            model=True,
            samples=True,
            trains=Policy.ENV,
            settings="rwr",
        ),
        StageEntry(
            "evaluate",
            "eval",
            "the agent on held-out tasks",
            model=True,
            samples=True,
            at_start=True,
        ),
        StageEntry("publish", "publ", "gates and the epoch's summary", at_start=True),
        StageEntry(
            "benchmark",
            "bench",
            "a model on a benchmark",
            model=True,
            samples=True,
            in_epochs=False,
        ),
    )
}
"""Every stage by name, in the order of a run."""

START_STAGES = tuple(name for name, entry in STAGES.items() if entry.at_start)
EPOCH_STAGES = tuple(name for name, entry in STAGES.items() if entry.in_epochs)
DRAWN = ("generate_tasks", "rollout", "grpo_update", "rwr_update")
"""Stages that draw random numbers of an epoch, so that a second draw gives something else."""
STEPPING = tuple(name for name, entry in STAGES.items() if entry.settings)
"""Stages that take optimizer steps, each with its section of settings."""
FIRST, LAST = START_STAGES[0], EPOCH_STAGES[-1]
"""The first stage of a run, and the last one of each epoch: a key of LAST marks it finished."""


def update_of(policy: Policy) -> str:
    """Return the stage that trains a policy."""
    return next(name for name, entry in STAGES.items() if entry.trains == policy)
