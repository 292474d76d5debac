"""Opens the engine of a sampling stage, as configured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from genenv_core.engines.protocol import Engine, EngineSetup, open_engine
from genenv_core.engines.retries import Patient, Retries
from tasks.stage import COMPUTE_FIELDS, StageContext
from tasks.stage.progress import check

SAMPLING_FIELDS = (*COMPUTE_FIELDS, "compute.vllm")
"""Fields that every sampling stage reads."""


def engine_of(context: StageContext[Any], checkpoint: Path, digest: str, *, top_p: float) -> Engine:
    """Return the engine on a checkpoint with this digest; close it when done.

    `top_p` is the nucleus of the sampling.
    """
    return open_engine(
        EngineSetup(
            checkpoint=checkpoint,
            digest=digest,
            compute=context.config.compute,
            execution=context.execution,
            top_p=top_p,
            durable=context.durable,
            check=check,
        )
    )


def retries_of(context: StageContext[Any]) -> Retries:
    """Return how often a stage repeats lost requests."""
    return Retries(context.execution.retries, context.execution.retry_seconds, check)


def patient_engine(
    context: StageContext[Any], checkpoint: Path, digest: str, *, top_p: float
) -> Patient:
    """Return an engine as `engine_of` does, which repeats failed requests."""
    return Patient(engine_of(context, checkpoint, digest, top_p=top_p), retries_of(context))
