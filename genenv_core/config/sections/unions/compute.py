"""What runs the numbers: the engine that samples, and threads."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Discriminator, Field

from genenv_core.config.sections.compute import Device, EngineKind, VllmConfig
from genenv_core.config.sections.section import Section
from genenv_core.config.sections.unions.alternatives import Alternatives, by


class ComputeConfig(Section):
    """What both engines have. Each field changes results, so each is in the stage keys."""

    engine: EngineKind = "transformers"
    """Sampling engine: transformers in this process, or vllm behind an HTTP server."""
    threads: int = Field(default=1, ge=1, le=256)
    """torch threads of a process. CPU results are bit-for-bit equal only for equal counts."""


class TransformersCompute(ComputeConfig):
    """Stages sample with transformers, each in its own process, in float32."""

    vllm: ClassVar[VllmConfig] = VllmConfig(version="0.31.0")
    """Keys and names of runs hold these values since section `compute` had all fields. They stay
    when the default version of vLLM rises."""

    device: Device = "cpu"
    """Where the engine transformers samples, in float32: on the CPU, or on the first GPU. vLLM's
    servers sample where they run."""


class VllmCompute(ComputeConfig):
    """Stages ask vLLM's servers, which sample where they run."""

    device: ClassVar[Device] = "cpu"
    """Keys and names of runs hold it since section `compute` had all fields."""

    engine: EngineKind = "vllm"
    """Sampling engine: transformers in this process, or vllm behind an HTTP server."""
    vllm: VllmConfig = Field(default_factory=lambda: VllmConfig())
    """Numbers of the engine vllm."""


ENGINES = Alternatives(
    "compute",
    "engines",
    {"transformers": TransformersCompute, "vllm": VllmCompute},
    field="engine",
)

ComputeSection = Annotated[
    Annotated[TransformersCompute, by("transformers")] | Annotated[VllmCompute, by("vllm")],
    Discriminator(ENGINES.tag),
    BeforeValidator(ENGINES.checked),
]
"""The engine of a run: the value of `engine` says which one it is."""
