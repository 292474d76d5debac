"""Stage `rwr_update`: reward-weighted regression of pi_env on its rows of D_env."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from genenv_core.algorithm.rwr import step_count
from genenv_core.epoch.env_update import env_rows
from genenv_core.epoch.rows import UpdateRows
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef
from genenv_core.training.requests import RwrRequest, of_env
from tasks.policies.update import update, without
from tasks.stage import COMPUTE_FIELDS, Stage, StageContext, StageTask

STAGE = Stage(
    "rwr_update",
    ("tasks.rwr_update", "genenv_core.training.rwr.trainer"),
    ("rwr", "training", *COMPUTE_FIELDS),
    ("torch", "transformers", "trl", "accelerate", "peft"),
)


@dataclass(frozen=True, slots=True)
class RwrUpdateInputs:
    """The current pi_env, whether to train it, the first pi_env, and the window of D_env."""

    env: CheckpointRef
    env_initial: CheckpointRef
    pools: Sequence[ArtifactRef]
    generations: Sequence[ArtifactRef]
    train: bool


def compute(context: StageContext[RwrUpdateInputs]) -> dict[str, Any]:
    """Train pi_env; return the facts."""
    steps, each = context.config.rwr.steps, context.config.rwr.steps_per_row
    return update(
        context,
        context.inputs.env,
        _rows(context) if context.inputs.train else None,
        partial(_request, context),
        lambda rows: (step_count(rows, steps=steps, steps_per_row=each), "steps"),
        unit="rows",
        without_rows=without(
            context.inputs.pools[-1], "no generation passed the k_min filter in this epoch"
        ),
    )


def _rows(context: StageContext[RwrUpdateInputs]) -> UpdateRows:
    return env_rows(
        context.frame(context.inputs.pools, "d_env"),
        context.frame(context.inputs.generations, "generations"),
        epoch=context.epoch,
        lambda_=context.config.rwr.lambda_,
    )


def _request(context: StageContext[RwrUpdateInputs], **shared: Any) -> RwrRequest:
    return RwrRequest(
        initial=context.checkpoint(context.inputs.env_initial),
        settings=context.config.rwr,
        training=of_env(context.config.training),
        **shared,
    )


rwr_update = StageTask(STAGE, RwrUpdateInputs, compute)
