"""What runs the numbers, and how the work is carried out."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from genenv_core.config.section import Section
from genenv_core.config.vllm import VllmConfig, VllmServing


class ComputeConfig(Section):
    """What runs the numbers; each of these changes results, so each is in the stage keys."""

    engine: Literal["transformers", "vllm"] = "transformers"
    """Sampling engine: transformers in this process, or vllm behind an HTTP server."""
    threads: int = Field(default=1, ge=1, le=256)
    """torch threads of a process. CPU results are bit-for-bit equal only for equal counts."""
    vllm: VllmConfig = Field(default_factory=lambda: VllmConfig())
    """Numbers of the engine vllm."""


class ExecutionConfig(Section):
    """How the work is carried out; none of these changes a result, so none is in a stage key."""

    checkpoint_seconds: float = Field(default=30.0, ge=0, le=86_400)
    """Least time between two trainer checkpoints of an update, which a killed one continues from;
    0: after every optimizer step."""
    tool_workers: int = Field(default=32, ge=1, le=4096)
    """Steps of a domain's tools executed side by side, with tools.execution pool."""
    open_attempts: int = Field(default=512, ge=1, le=1_000_000)
    """Attempts under way at once where each advances on its own; bounds memory."""
    test_fault: str | None = Field(default=None, pattern=r"^[a-z_]+:[0-9]{1,5}$")
    """For genenv's own tests: `stage:epoch` makes the first attempt at that stage fail. Refused
    unless GENENV_TEST_FAULTS=1 is set where the run is carried out."""
    vllm: VllmServing = Field(default_factory=lambda: VllmServing())
    """How the engine vllm is run."""
    gradient_checkpointing: Literal["none", "full"] = "none"
    """Whether updates keep only each layer's input for the backward pass and compute the rest of it
    again: about a third more work for much less memory, and the same numbers."""
