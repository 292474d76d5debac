"""How many rows of a micro-batch fit into a device, and what is said when none does. Light."""

from __future__ import annotations

import logging
from typing import TypeVar

import polars as pl

from genenv_core.errors import ModelError, TrainingError
from genenv_core.training.base import GrpoRequest, RwrRequest
from genenv_core.training.memory import GB, Estimate, Job, Shape, estimate, remedies

log = logging.getLogger("genenv.training")

Request = TypeVar("Request", GrpoRequest, RwrRequest)


def job_of(request: GrpoRequest | RwrRequest) -> Job:
    """Return an update's sizes, from its model's config.json and its own rows."""
    lengths = pl.scan_parquet(request.rows).select(
        prompt=pl.col("prompt_ids").list.len(), completion=pl.col("completion_ids").list.len()
    )
    row, completion = (
        lengths.select((pl.col("prompt") + pl.col("completion")).max(), pl.col("completion").max())
        .collect()
        .row(0)
    )
    lora = request.training.lora
    if isinstance(request, GrpoRequest):
        reference = request.settings.kl_coef > 0 and lora.rank == 0
    else:  # with an adapter on pi_env^0 itself, that is the policy with the adapter left out
        reference = lora.rank == 0 or (lora.merge and request.checkpoint != request.initial)
    return Job(
        update="grpo" if isinstance(request, GrpoRequest) else "rwr",
        shape=Shape.read(request.checkpoint),
        training=request.training,
        row_tokens=int(row or 1),
        completion_tokens=int(completion or 1),
        gradient_checkpointing=request.gradient_checkpointing,
        reference=reference,
    )


def fitted(request: Request, memory: float | None) -> Request:
    """Return the request with as many rows in a micro-batch as fit into `memory` bytes.

    Never more than it asks for; None: no limit. Raises `TrainingError` when not even one row fits,
    before anything is loaded.
    """
    try:
        job = job_of(request)
    except ModelError as error:
        log.warning("%s; it starts all the same", error)
        return request
    needed, wanted = estimate(job), request.settings.micro_batch_rows
    rows = wanted if memory is None else min(wanted, needed.largest(memory))
    if rows < 1:
        raise TrainingError(too_small(job, needed, memory or 0))
    log.info(
        "update=%s device=%s processes=%d micro_batch_rows=%d estimated_memory=%s",
        job.update, request.training.device, request.training.processes, rows, needed.told(rows),
    )  # fmt: skip
    settings = request.settings.model_copy(update={"micro_batch_rows": rows})
    return request.model_copy(update={"settings": settings})


def too_small(job: Job, needed: Estimate, memory: float) -> str:
    """Return what to do about an update that does not fit into `memory` bytes of a device."""
    return (
        f"the {job.update.upper()} update needs about {needed.told(1)} on each device for rows of "
        f"{job.row_tokens} tokens, and there are {memory / GB:.3g} GB: set {remedies(job)}"
    )
