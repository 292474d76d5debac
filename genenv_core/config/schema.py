"""The run configuration: frozen pydantic models, one docstring and bounds for every field.

Light on purpose: nothing here imports torch, prefect or a file system, so a configuration is
checked in a blink. Its sections are in the modules beside this one; defaults are the quickstart's,
and the presets are YAML files.
"""

from __future__ import annotations

from typing import Any, Self, cast

from pydantic import Field, model_validator

from genenv_core.config.arms import ARMS, Arm, ArmSpec, TaskSet
from genenv_core.config.moved import check_constants, with_moved
from genenv_core.config.sections.benchmark import MeasureConfig
from genenv_core.config.sections.compute import ExecutionConfig, VllmServing
from genenv_core.config.sections.curriculum import CurriculumConfig, GenerationConfig, Level
from genenv_core.config.sections.data import DataConfig, DomainConfig
from genenv_core.config.sections.endpoint import EndpointAsking
from genenv_core.config.sections.evaluation import EvaluationConfig, GatesConfig
from genenv_core.config.sections.limits import LimitsConfig, PricesConfig
from genenv_core.config.sections.models import BootstrapConfig, ModelsConfig
from genenv_core.config.sections.placement import PlacementConfig
from genenv_core.config.sections.rollout import RefillConfig, RolloutConfig, ToolsConfig, most_tasks
from genenv_core.config.sections.roots import RootsConfig
from genenv_core.config.sections.section import Section
from genenv_core.config.sections.tracking import TrackingConfig
from genenv_core.config.sections.training import TrainingConfig
from genenv_core.config.sections.unions.benchmark import (
    BenchmarkSection,
    MeasuredCheckpoint,
    MeasuredEndpoint,
    NoMeasurement,
)
from genenv_core.config.sections.unions.compute import (
    ComputeSection,
    TransformersCompute,
    VllmCompute,
)
from genenv_core.config.sections.unions.teacher import (
    TEACHERS,
    EndpointTeacher,
    FileTeacher,
    NoTeacher,
    TeacherConfig,
    writes,
)
from genenv_core.config.sections.updates import (
    AgentUpdateConfig,
    GrpoConfig,
    MixtureConfig,
    RwrConfig,
)
from genenv_core.config.sections.warm_start import WarmStartConfig
from genenv_core.errors import ConfigError
from genenv_core.machine.wrong_values import worded
from genenv_core.types import Policy

RUN_ID = worded(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
    "up to 100 letters, digits, dots, hyphens and underscores, a letter or a digit first",
)
"""Names of runs, which are names of folders as well."""


class RunConfig(Section):
    """One resolved configuration: everything that a co-evolution depends on."""

    arm: Arm = Field(
        default=Arm.GENENV,
        description="; ".join(f"{arm} ({spec.does})" for arm, spec in ARMS.items()) + ".",
    )
    epochs: int = Field(default=12, ge=1, le=100_000)
    """Co-evolution rounds."""
    seed: int = Field(default=0, ge=0, le=2**31 - 1)
    """Seed of everything random."""
    run_id: str | None = Field(default=None, pattern=RUN_ID)
    """Name of the run; None: made from the configuration, so the same command continues."""
    root: str = Field(default="./genenv-data", min_length=1)
    """The root that keeps all runs: a directory or an s3:// prefix."""
    domain: DomainConfig = Field(default_factory=DomainConfig)
    """The kind of task."""
    models: ModelsConfig = Field(default_factory=lambda: ModelsConfig())
    """The two policies."""
    data: DataConfig = Field(default_factory=lambda: DataConfig())
    """Base and held-out data."""
    teacher: TeacherConfig = Field(default_factory=lambda: NoTeacher())
    """Writer of the tasks of arm offline: `model` (a checkpoint), `url` (an endpoint) or `file`."""
    bootstrap: BootstrapConfig = Field(default_factory=lambda: BootstrapConfig())
    """Warm start of the tiny models."""
    warm_start: WarmStartConfig = Field(default_factory=lambda: WarmStartConfig())
    """Warm start of given models."""
    curriculum: CurriculumConfig = Field(default_factory=lambda: CurriculumConfig())
    """Environment reward and filter."""
    generation: GenerationConfig = Field(default_factory=lambda: GenerationConfig())
    """Task generation."""
    rollout: RolloutConfig = Field(default_factory=lambda: RolloutConfig())
    """Attempts."""
    refill: RefillConfig = Field(default_factory=lambda: RefillConfig())
    """Further tasks for those whose groups have no signal."""
    tools: ToolsConfig = Field(default_factory=lambda: ToolsConfig())
    """Who answers the agent."""
    mixture: MixtureConfig = Field(default_factory=lambda: MixtureConfig())
    """D_train sample of an update."""
    grpo: GrpoConfig = Field(default_factory=lambda: GrpoConfig())
    """Agent update."""
    agent_update: AgentUpdateConfig = Field(default_factory=lambda: AgentUpdateConfig())
    """Algorithm of the agent update."""
    rwr: RwrConfig = Field(default_factory=lambda: RwrConfig())
    """Environment update."""
    training: TrainingConfig = Field(default_factory=lambda: TrainingConfig())
    """Device, processes, precision and LoRA of both updates."""
    evaluation: EvaluationConfig = Field(default_factory=lambda: EvaluationConfig())
    """Held-out metrics."""
    benchmark: BenchmarkSection = Field(default_factory=lambda: NoMeasurement())
    """A model to measure on a benchmark, in place of a co-evolution."""
    measure: MeasureConfig = Field(default_factory=lambda: MeasureConfig())
    """Benchmarks that measure the agent."""
    gates: GatesConfig = Field(default_factory=lambda: GatesConfig())
    """Publishing gates."""
    compute: ComputeSection = Field(default_factory=lambda: TransformersCompute())
    """Engine and threads."""
    execution: ExecutionConfig = Field(default_factory=lambda: ExecutionConfig())
    """What may change at any time without changing results."""
    placement: PlacementConfig = Field(default_factory=lambda: PlacementConfig())
    """Which stages are computed on which work pool."""
    tracking: TrackingConfig = Field(default_factory=lambda: TrackingConfig())
    """MLflow."""
    roots: RootsConfig = Field(default_factory=lambda: RootsConfig())
    """Other roots to read finished stages from."""
    limits: LimitsConfig = Field(default_factory=lambda: LimitsConfig())
    """What the run may spend."""
    prices: PricesConfig = Field(default_factory=lambda: PricesConfig())
    """What machines and tokens cost."""

    @model_validator(mode="before")
    @classmethod
    def _recorded(cls, values: Any) -> Any:
        """Read what an older genenv recorded."""
        if not isinstance(values, dict):
            return values
        known = with_moved(cast("dict[str, Any]", values))
        check_constants(known)
        return known

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        spec = ARMS[self.arm]
        self._tasks(spec)
        self._refill(spec)
        if self.rollout.n == 1 and spec.trains_agent:
            others = (arm for arm, other in ARMS.items() if not other.trains_agent)
            raise ValueError(
                "rollout.n 1 gives groups of one, which carry no signal for GRPO: "
                f"use 2 or more, or arm {' or '.join(others)}"
            )
        for label, shape in (("agent", self.bootstrap.agent), ("env", self.bootstrap.env)):
            if shape.hidden_size % shape.heads:
                raise ValueError(
                    f"bootstrap.{label}.heads {shape.heads} does not divide "
                    f"bootstrap.{label}.hidden_size {shape.hidden_size}"
                )
        self._warm()
        self._target()
        self._engine()
        self._attribution()
        self._algorithm()
        self._measured()
        self._limited()
        lowest = self.gates.min_fidelity
        if self.tools.execution != "simulated" and lowest != GatesConfig().min_fidelity:
            raise ValueError(
                f"gates.min_fidelity {lowest:g} does nothing with tools.execution "
                f"{self.tools.execution}: remove it or set tools.execution to simulated"
            )
        return self

    @property
    def warm_started(self) -> list[Policy]:
        """Return the policies whose given models get a warm start before the game."""
        names = {Policy.AGENT: self.models.agent, Policy.ENV: self.models.env}
        given = [policy for policy, name in names.items() if name != "bootstrap"]
        return given if self.warm_start.steps else []

    @property
    def measured(self) -> MeasuredCheckpoint | MeasuredEndpoint:
        """Return what is measured; raises ConfigError for a run that measures no model."""
        if isinstance(self.benchmark, NoMeasurement):
            raise ConfigError("section benchmark: set benchmark.model or benchmark.url")
        return self.benchmark

    def _warm(self) -> None:
        """Refuse a warm start of given models in a run that has no given model."""
        if self.warm_start.steps and not self.warm_started:
            raise ValueError(
                f"warm_start.steps {self.warm_start.steps} does nothing, because bootstrap makes "
                "both models: give models.agent or models.env, or set warm_start.steps=0"
            )

    def _tasks(self, spec: ArmSpec) -> None:
        """Refuse an arm without its tasks, and a teacher or a set that it would not use."""
        taught, given = spec.tasks is TaskSet.TEACHER, not isinstance(self.teacher, NoTeacher)
        if taught and not given:
            raise ValueError(
                f"arm {self.arm} has no teacher: set teacher.file, teacher.model or teacher.url"
            )
        if given and not taught:
            others = " or ".join(a for a, other in ARMS.items() if other.tasks is TaskSet.TEACHER)
            raise ValueError(
                f"teacher.{TEACHERS.given(self.teacher)} does nothing for arm {self.arm}: remove "
                f"it or set arm to {others}"
            )
        if self.data.set_tasks and not spec.one_set(writes(self.teacher)):
            file = isinstance(self.teacher, FileTeacher)
            why = "teacher.file is a set of its own" if file else "it has no set of tasks"
            raise ValueError(
                f"data.set_tasks does nothing for arm {self.arm}, because {why}: remove it, or use "
                "arm static, or arm offline with teacher.model or teacher.url"
            )
        if self.data.set_tasks > self.generation.max_generations:
            raise ValueError(
                f"generation.max_generations {self.generation.max_generations} cannot yield "
                f"data.set_tasks {self.data.set_tasks}: raise the first or lower the second"
            )
        endpoint = isinstance(self.teacher, EndpointTeacher)
        if self.generation.structured and endpoint:
            raise ValueError(
                "generation.structured does nothing for teacher.url, which is sent no grammar: set "
                "it to false"
            )
        if self.execution.teacher != EndpointAsking() and not endpoint:
            raise ValueError(
                "execution.teacher does nothing without teacher.url: set that or remove this"
            )

    def _refill(self, spec: ArmSpec) -> None:
        """Refuse a refill that no update would use, or that has no reserve to take tasks from."""
        refill, generation = self.refill, self.generation
        if not refill.groups:
            return
        asked = f"refill.groups {refill.groups}"
        if not spec.trains_agent:
            raise ValueError(
                f"{asked} does nothing for arm {self.arm}, which trains no agent: remove it"
            )
        if spec.tasks is TaskSet.TEACHER or self.data.set_tasks:
            whose = "a teacher's tasks" if spec.tasks is TaskSet.TEACHER else "data.set_tasks"
            raise ValueError(
                f"{asked} has no reserve with {whose}, all of which are attempted in their turn: "
                f"remove refill.groups{'' if whose[0] == 'a' else ' or data.set_tasks'}"
            )
        if generation.candidates == 1:
            raise ValueError(
                f"{asked} has no reserve with generation.candidates 1, where every task is "
                "attempted at first: raise generation.candidates, or remove refill.groups"
            )
        written = generation.tasks * generation.candidates
        if refill.max_tasks is not None and not generation.tasks < refill.max_tasks <= written:
            raise ValueError(
                f"refill.max_tasks {refill.max_tasks} must be above generation.tasks "
                f"{generation.tasks}, which are attempted at first, and at most {written}, "
                "generation.tasks x generation.candidates: set a number between, or remove it"
            )
        most = most_tasks(refill, tasks=generation.tasks, candidates=generation.candidates)
        if refill.groups > most:
            raise ValueError(
                f"{asked} is more than the {most} new tasks that an epoch attempts at most: lower "
                "it, or raise refill.max_tasks or generation.candidates"
            )
        room = self.grpo.max_groups * self.mixture.new
        if refill.groups > room + 0.5:
            raise ValueError(
                f"{asked} is more than an update draws, {room:g} new groups of grpo.max_groups "
                f"{self.grpo.max_groups} x mixture.new {self.mixture.new:g}: lower it, or raise "
                "grpo.max_groups"
            )

    def _limited(self) -> None:
        """Refuse limits that would stop nothing."""
        limits = self.limits
        if limits.cost is not None and not self.prices.given:
            raise ValueError(
                f"limits.cost {limits.cost:g} counts nothing without prices: set one, such as "
                "prices.hour=2.5, or remove limits.cost"
            )
        if limits.given and self.benchmark.given:
            raise ValueError(
                f"limits.{next(iter(limits.given))} does nothing here: limits end a run between "
                "two stages, and one that measures a model has one: remove section limits"
            )

    def _measured(self) -> None:
        """Refuse a benchmark in a run that trains, and settings without one."""
        given = self.benchmark
        simulated = isinstance(given, MeasuredCheckpoint) and given.simulator is not None
        if given.given and self.arm is not Arm.BASE:
            raise ValueError(
                f"section benchmark measures a model and trains none, so arm {self.arm} does "
                f"nothing beside it: set arm to {Arm.BASE}"
            )
        if given.given and (self.tools.execution == "simulated") != simulated:
            raise ValueError(
                "benchmark.simulator plays the tools with tools.execution simulated: set both or "
                "neither"
            )
        if self.measure != MeasureConfig() and not self.measure.benchmarks:
            raise ValueError(
                "section measure does nothing without measure.benchmarks: name some or remove it"
            )
        if self.measure.benchmarks and given.given:
            raise ValueError(
                "measure.benchmarks are for the agent of a run, and this one measures "
                "section benchmark's model: remove one of them"
            )
        asks = self.execution.benchmark != EndpointAsking()
        if asks and not isinstance(given, MeasuredEndpoint):
            raise ValueError(
                "execution.benchmark does nothing without benchmark.url: set that or remove this"
            )

    def _target(self) -> None:
        """Refuse a pay of tasks judged by more than the task, and a target that moves nothing."""
        pay, level = self.rwr.pay, self.curriculum.level
        if pay != "alpha" and level is not Level.TASK:
            raise ValueError(
                f"rwr.pay {pay} is of each task's own attempts, not of curriculum.level {level}: "
                "set that to task, or rwr.pay to alpha"
            )
        if self.curriculum.track in (0, CurriculumConfig().track):
            return
        if pay != "alpha":
            raise ValueError(
                f"curriculum.track {self.curriculum.track:g} does nothing with rwr.pay {pay}, "
                "which has no target: remove it or set rwr.pay to alpha"
            )
        if not self.rwr.lambda_:
            raise ValueError(
                f"curriculum.track {self.curriculum.track:g} does nothing with rwr.lambda 0: "
                "remove it or raise rwr.lambda"
            )
        if level is Level.BATCH and self.rwr.window_epochs == 1:
            raise ValueError(
                f"curriculum.track {self.curriculum.track:g} does nothing with curriculum.level "
                "batch and rwr.window_epochs 1, where all rows have one p_hat: remove it or use "
                "another level"
            )

    def _attribution(self) -> None:
        """Refuse to measure what groups teach where no process holds the whole agent."""
        if self.grpo.attribution and self.training.sharded:
            raise ValueError(
                "grpo.attribution takes gradients of the whole agent in one process, and "
                f"training.strategy {self.training.strategy} cuts it into pieces: leave "
                "grpo.attribution out or use strategy ddp"
            )

    def _algorithm(self) -> None:
        """Refuse an algorithm of one's own beside what only GRPO has."""
        if not self.agent_update.own:
            return
        name = self.agent_update.algorithm
        if others := self.grpo.of_its_loss:
            fields = GrpoConfig.model_fields
            back = " ".join(f"--set grpo.{f}={_plain(fields[f].default)}" for f in others)
            raise ValueError(
                f"grpo.{next(iter(others))} is of GRPO's loss and does nothing with "
                f"agent_update.algorithm {name}: remove it, or take it back by {back}"
            )
        if self.rwr.pay == "signal":
            raise ValueError(
                "rwr.pay signal pays pi_env for the advantages of GRPO, and agent_update.algorithm "
                f"{name} has its own: set rwr.pay to alpha or learnability"
            )

    def _engine(self) -> None:
        """Refuse servers of another engine, and logprobs that the engine cannot return."""
        if not isinstance(self.compute, VllmCompute):
            if self.execution.vllm != VllmServing():
                raise ValueError(
                    f"execution.vllm does nothing for compute.engine {self.compute.engine}: "
                    "remove it or set compute.engine to vllm"
                )
            return
        for name, section in (("generation", self.generation), ("rollout", self.rollout)):
            if section.top_p < 1 and section.temperature != 1:
                raise ValueError(
                    f"{name}.top_p {section.top_p:g} with {name}.temperature "
                    f"{section.temperature:g}: vLLM returns logprobs before the temperature or "
                    "after the nucleus, and neither is the sampling policy's: set one of them to 1"
                )


def _plain(value: object) -> str:
    """Return a value as it is written in a configuration."""
    return "null" if value is None else str(value)
