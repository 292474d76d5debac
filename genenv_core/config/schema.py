"""The run configuration: frozen pydantic models, one docstring and bounds for every field.

Light on purpose: nothing here imports torch, prefect or a file system, so a configuration is
checked in a blink. Its sections are in the modules beside this one; defaults are the quickstart's,
and the presets are YAML files.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from genenv_core.config.compute import ComputeConfig, ExecutionConfig
from genenv_core.config.curriculum import CurriculumConfig, GenerationConfig
from genenv_core.config.data import DataConfig, DomainConfig
from genenv_core.config.evaluation import EvaluationConfig, GatesConfig
from genenv_core.config.models import BootstrapConfig, ModelsConfig
from genenv_core.config.placement import PlacementConfig
from genenv_core.config.rollout import RolloutConfig, ToolsConfig
from genenv_core.config.section import Section
from genenv_core.config.tracking import TrackingConfig
from genenv_core.config.training import TrainingConfig
from genenv_core.config.updates import GrpoConfig, MixtureConfig, RwrConfig


class Arm(StrEnum):
    """One method in a comparison; all arms run the same code path."""

    GENENV = "genenv"
    RANDOM = "random"
    STATIC = "static"
    OFFLINE = "offline"
    BASE = "base"


class RunConfig(Section):
    """One resolved configuration: everything that a co-evolution depends on."""

    arm: Arm = Arm.GENENV
    """genenv; random (pi_env never updated); static (one set, generated before epoch 1); offline
    (tasks from data.offline_file); base (no training)."""
    epochs: int = Field(default=12, ge=1, le=100_000)
    """Co-evolution rounds."""
    seed: int = Field(default=0, ge=0, le=2**31 - 1)
    """Seed of everything random."""
    run_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    """Name of the run; None: made from the configuration, so the same command continues."""
    root: str = Field(default="./genenv-data", min_length=1)
    """Where everything is kept: a directory or an s3:// prefix."""
    domain: DomainConfig = Field(default_factory=DomainConfig)
    """The kind of task."""
    models: ModelsConfig = Field(default_factory=lambda: ModelsConfig())
    """The two policies."""
    data: DataConfig = Field(default_factory=lambda: DataConfig())
    """Base, held-out and offline data."""
    bootstrap: BootstrapConfig = Field(default_factory=lambda: BootstrapConfig())
    """Warm start of the tiny models."""
    curriculum: CurriculumConfig = Field(default_factory=lambda: CurriculumConfig())
    """Environment reward and filter."""
    generation: GenerationConfig = Field(default_factory=lambda: GenerationConfig())
    """Task generation."""
    rollout: RolloutConfig = Field(default_factory=lambda: RolloutConfig())
    """Attempts."""
    tools: ToolsConfig = Field(default_factory=lambda: ToolsConfig())
    """Who answers the agent."""
    mixture: MixtureConfig = Field(default_factory=lambda: MixtureConfig())
    """D_train sample of an update."""
    grpo: GrpoConfig = Field(default_factory=lambda: GrpoConfig())
    """Agent update."""
    rwr: RwrConfig = Field(default_factory=lambda: RwrConfig())
    """Environment update."""
    training: TrainingConfig = Field(default_factory=lambda: TrainingConfig())
    """Device, processes, precision and LoRA of both updates."""
    evaluation: EvaluationConfig = Field(default_factory=lambda: EvaluationConfig())
    """Held-out metrics."""
    gates: GatesConfig = Field(default_factory=lambda: GatesConfig())
    """Publishing gates."""
    compute: ComputeConfig = Field(default_factory=lambda: ComputeConfig())
    """Engine and threads."""
    execution: ExecutionConfig = Field(default_factory=lambda: ExecutionConfig())
    """What may change at any time without changing results."""
    placement: PlacementConfig = Field(default_factory=lambda: PlacementConfig())
    """Which stages are computed on which work pool."""
    tracking: TrackingConfig = Field(default_factory=lambda: TrackingConfig())
    """MLflow."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.arm is Arm.OFFLINE and self.data.offline_file is None:
            raise ValueError("arm offline reads its tasks from data.offline_file: set it")
        if self.arm is not Arm.OFFLINE and self.data.offline_file is not None:
            raise ValueError(
                f"data.offline_file does nothing for arm {self.arm.value}: "
                "remove it or set arm to offline"
            )
        if self.rollout.n == 1 and self.arm is not Arm.BASE:
            raise ValueError(
                "rollout.n 1 gives groups of one, which carry no signal for GRPO: "
                "use 2 or more, or arm base"
            )
        for label, shape in (("agent", self.bootstrap.agent), ("env", self.bootstrap.env)):
            if shape.hidden_size % shape.heads:
                raise ValueError(
                    f"bootstrap.{label}.heads {shape.heads} does not divide "
                    f"bootstrap.{label}.hidden_size {shape.hidden_size}"
                )
        self._engine()
        return self

    def _engine(self) -> None:
        """Refuse what the engine would ignore, and what it cannot tell."""
        if self.compute.engine != "vllm":
            if self.generation.structured:
                raise ValueError(
                    "generation.structured needs compute.engine vllm: the engine "
                    f"{self.compute.engine} samples without a grammar"
                )
            for name, section in (("compute", self.compute), ("execution", self.execution)):
                if section.vllm != type(section.vllm)():
                    raise ValueError(
                        f"{name}.vllm does nothing for compute.engine {self.compute.engine}: "
                        "remove it or set compute.engine to vllm"
                    )
            return
        for name, section in (("generation", self.generation), ("rollout", self.rollout)):
            if section.top_p < 1 and section.temperature != 1:
                raise ValueError(
                    f"{name}.top_p {section.top_p:g} with {name}.temperature "
                    f"{section.temperature:g}: vLLM tells logprobs before the temperature or after "
                    "the nucleus, and neither is the sampling policy's: set one of them to 1"
                )
