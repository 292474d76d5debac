"""The engine of a stage that samples, as the configuration asks for it."""

from __future__ import annotations

from pathlib import Path

from genenv_core.engines.base import Engine
from genenv_core.engines.registry import open_engine
from genenv_core.engines.vllm.setup import VllmSetup
from tasks.progress import check
from tasks.stage import COMPUTE_FIELDS, StageContext

SAMPLING_FIELDS = (*COMPUTE_FIELDS, "compute.vllm")
"""What every stage that samples reads."""


def engine_of(context: StageContext, checkpoint: Path, digest: str, *, top_p: float) -> Engine:
    """Return the engine on a checkpoint with this digest; close it when done.

    A server calls the model by its digest, so that its answers say whose they are. `top_p` is the
    nucleus that will be sampled with.
    """
    compute = context.config.compute
    if compute.engine != "vllm":
        return open_engine(compute.engine, checkpoint, threads=compute.threads)
    name = f"genenv-{digest[:16]}"
    setup = VllmSetup(
        name=name,
        config=compute.vllm,
        serving=context.execution.vllm,
        log=context.durable() / f"{name}.log",
        # Before a nucleus of 1 the two are the same but for the temperature, which counts.
        logprobs_mode="processed_logprobs" if top_p == 1 else "raw_logprobs",
        check=check,
    )
    return open_engine(compute.engine, checkpoint, threads=compute.threads, vllm=setup)
