"""The run configuration: frozen pydantic models, one docstring and bounds for every field.

Light on purpose: nothing here imports torch, prefect or a file system, so a configuration is
checked in a blink. Defaults are the quickstart's; the presets are YAML files beside this module.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from genenv_core.config.section import STRICT as STRICT
from genenv_core.config.section import Section as _Section
from genenv_core.config.training import TrainingConfig
from genenv_core.config.vllm import VllmConfig, VllmServing


class Arm(StrEnum):
    """One method in a comparison; all arms run the same code path."""

    GENENV = "genenv"
    RANDOM = "random"
    STATIC = "static"
    OFFLINE = "offline"
    BASE = "base"


class Level(StrEnum):
    """Where p_hat is judged: a task, all tasks of one conditioning context, or the whole batch."""

    TASK = "task"
    GROUP = "group"
    BATCH = "batch"


class DomainConfig(_Section):
    """Which kind of task the game is about."""

    name: str = Field(default="desk", min_length=1, max_length=64)
    """Domain name: a built-in or one registered under the entry-point group genenv.domains."""
    options: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Options of the domain itself; each domain validates its own."""


class ModelsConfig(_Section):
    """The two policies. `bootstrap` builds a tiny model; anything else is a directory or hub id."""

    agent: str = Field(default="bootstrap", min_length=1)
    """pi_agent: `bootstrap`, a Hugging Face checkpoint directory, or a hub id."""
    agent_revision: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$")
    """Commit of the hub repository of pi_agent; a hub id without it is refused."""
    env: str = Field(default="bootstrap", min_length=1)
    """pi_env: `bootstrap`, a Hugging Face checkpoint directory, or a hub id."""
    env_revision: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$")
    """Commit of the hub repository of pi_env; a hub id without it is refused."""

    @model_validator(mode="after")
    def _revisions(self) -> Self:
        for policy in ("agent", "env"):
            name, revision = getattr(self, policy), getattr(self, f"{policy}_revision")
            hub = _is_hub_id(name)
            if hub and revision is None:
                raise ValueError(
                    f"models.{policy} {name!r} is a hub id and needs its commit: set "
                    f"models.{policy}_revision (a directory is written with a leading ./ or /)"
                )
            if revision is not None and not hub:
                raise ValueError(
                    f"models.{policy}_revision does nothing for {name!r}, which is no hub id: "
                    "remove it"
                )
        return self


def _is_hub_id(name: str) -> bool:
    return name != "bootstrap" and re.fullmatch(r"[\w-][\w.-]*(/[\w.-]+)?", name) is not None


BaseField = Literal["program", "prompt", "ground_truth"]
"""What a base task is read from: its program alone, or a prompt and its answer."""


class DataConfig(_Section):
    """The data that the game starts from and is measured on."""

    base_tasks: int = Field(default=256, ge=1, le=1_000_000)
    """Number of base tasks that the domain provides (most tasks taken of base_file, when given)."""
    base_file: str | None = None
    """A file of base tasks, or a folder with a Hugging Face dataset; None: the domain's own."""
    base_format: Literal["auto", "jsonl", "csv", "parquet", "hf", "verl"] = "auto"
    """How base_file is read: hf is a dataset folder (its split train), verl is Parquet with
    `prompt` and `reward_model.ground_truth`; auto goes by the name's ending, a folder is hf."""
    base_mapping: dict[BaseField, str] = Field(default_factory=dict[BaseField, str])
    """Field of a task -> column of base_file, dots lead into structures: {program: extra_info.text}
    or, where the domain reads tasks from these, {prompt: question, ground_truth: answer}. Empty:
    {program: program}, or verl's own columns."""
    skip_bad: bool = False
    """Whether rows of base_file that are no task are skipped and listed; else the first one stops
    the run."""
    heldout_tasks: int = Field(default=720, ge=1, le=100_000)
    """Number of held-out tasks; never trained on, and no generated task may equal one."""
    offline_file: str | None = None
    """Arm offline: a JSONL file of {"program": ...} lines, written by a stronger teacher."""

    @model_validator(mode="after")
    def _base(self) -> Self:
        given = self.model_fields_set & {"base_format", "base_mapping", "skip_bad"}
        for name in sorted(given):
            default = type(self).model_fields[name].get_default(call_default_factory=True)
            if self.base_file is None and getattr(self, name) != default:
                raise ValueError(
                    f"data.{name} does nothing without data.base_file: set that or remove this"
                )
        if self.base_mapping and "program" in self.base_mapping and len(self.base_mapping) > 1:
            raise ValueError(
                "data.base_mapping names program beside prompt or ground_truth: a task is read "
                "from its program alone, or from both of the others"
            )
        if set(self.base_mapping) in ({"prompt"}, {"ground_truth"}):
            raise ValueError(
                "data.base_mapping needs prompt and ground_truth together, or program alone"
            )
        return self


class ModelSizeConfig(_Section):
    """Shape of a tiny Llama-architecture model made by bootstrap."""

    hidden_size: int = Field(default=64, ge=8, le=4096, multiple_of=4)
    """Width of the residual stream."""
    layers: int = Field(default=2, ge=1, le=64)
    """Number of decoder layers."""
    heads: int = Field(default=4, ge=1, le=64)
    """Number of attention heads; divides hidden_size."""
    intermediate_size: int = Field(default=160, ge=8, le=16384)
    """Width of the MLP."""


class BootstrapConfig(_Section):
    """Warm start of the tiny models from generated seed data; unused when both models are given."""

    agent: ModelSizeConfig = Field(default_factory=lambda: ModelSizeConfig(layers=3))
    """Shape of pi_agent."""
    env: ModelSizeConfig = Field(default_factory=lambda: ModelSizeConfig())
    """Shape of pi_env."""
    agent_steps: int = Field(default=1800, ge=1, le=1_000_000)
    """Most supervised steps of pi_agent; it stops earlier, unfinished on purpose, at agent_target
    (desk: after about 700)."""
    env_steps: int = Field(default=360, ge=1, le=1_000_000)
    """Supervised steps of pi_env: two thirds on all difficulties, one third on easy_skew's."""
    batch_rows: int = Field(default=64, ge=1, le=4096)
    """Rows in a step; rows of a step have about the same length."""
    learning_rate: float = Field(default=3e-3, gt=0, le=1)
    """Peak learning rate, warmed up over 5 % and decayed by a cosine."""
    agent_target: float = Field(default=0.72, gt=0, le=1)
    """Greedy success on fresh seed examples at which the warm start of pi_agent stops; below 1, so
    that something is left to learn."""
    easy_skew: float = Field(default=1.0, ge=0, le=1)
    """How easy pi_env starts: 0 = difficulty uniform, 1 = nearly all of the lowest difficulty."""


class CurriculumConfig(_Section):
    """The alpha-curriculum reward and the difficulty filter (GenEnv, arXiv 2512.19682)."""

    alpha: float = Field(default=0.5, ge=0, le=1)
    """Target success rate of the agent."""
    beta: float = Field(default=4.0, gt=0, le=1000)
    """Sharpness of R_env = exp(-beta (p_hat - alpha)^2)."""
    level: Level = Level.TASK
    """Where p_hat is judged for R_env and for the filter of the environment update."""
    k_min: float = Field(default=0.2, ge=0, le=1)
    """Half-width of the difficulty band: excluded when |p_hat - alpha| > k_min. With n = 8, 0.2
    keeps 3 to 5 successes; 0.25 would keep 6, which a task of true rate .8 gets too easily."""
    filter_agent: bool = False
    """Whether the band also guards the agent update (it always guards the environment update)."""


class GenerationConfig(_Section):
    """How pi_env writes tasks."""

    tasks: int = Field(default=64, ge=1, le=100_000)
    """Valid tasks wanted an epoch; fewer when max_generations is reached first."""
    tasks_per_context: int = Field(default=4, ge=1, le=1000)
    """Generations conditioned on one context (one base task and the agent's history)."""
    max_generations: int = Field(default=192, ge=1, le=1_000_000)
    """Upper bound on generations an epoch, valid or not; at least `tasks`."""
    max_tokens: int = Field(default=32, ge=1, le=131_072)
    """Longest generation, in tokens."""
    temperature: float = Field(default=1.0, gt=0, le=2)
    """Sampling temperature of pi_env."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus of pi_env's sampling; 1 keeps the whole distribution."""
    structured: bool = False
    """Whether pi_env can only write what the domain's grammar allows; needs engine vllm, and a
    domain that has one. Stored logprobs are then those of the constrained sampling."""
    history_epochs: int = Field(default=4, ge=0, le=10_000)
    """A task equal to one of this many last epochs is a duplicate; 0 looks at this batch only."""

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.max_generations < self.tasks:
            raise ValueError(
                f"generation.max_generations {self.max_generations} cannot yield "
                f"generation.tasks {self.tasks}: raise the first or lower the second"
            )
        return self


class RolloutConfig(_Section):
    """How pi_agent attempts tasks."""

    n: int = Field(default=8, ge=1, le=1024)
    """Attempts at each task: the size of a group."""
    max_tokens: int = Field(default=48, ge=1, le=131_072)
    """Longest completion of one turn, in tokens."""
    max_turns: int = Field(default=8, ge=1, le=1000)
    """Turns after which an episode is cut; its last observation is never answered."""
    max_length: int = Field(default=1024, ge=2, le=1_000_000)
    """Longest rollout, prompt included, in tokens; a longer one ends with finish reason length."""
    temperature: float = Field(default=1.0, gt=0, le=2)
    """Sampling temperature of pi_agent; GRPO divides its logits by the same number."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus of pi_agent's sampling. Below 1 the update's ratio uses untruncated logprobs."""
    shard_groups: int = Field(default=32, ge=1, le=100_000)
    """Groups sampled together and committed together: what a crash can cost."""
    logprob_rows: int = Field(default=16, ge=0, le=10_000)
    """Rollouts whose logprobs are computed again with the trainer's arithmetic and compared with
    the engine's; 0: none, and no gate."""
    max_logprob_gap: float = Field(default=0.1, gt=0, le=100)
    """Largest mean difference of the two, nats a token; above it the stage fails, because an update
    would learn from ratios that are wrong."""


class ToolsConfig(_Section):
    """Who answers the agent between its turns."""

    execution: Literal["inline", "pool", "simulated"] = "inline"
    """inline: the domain's code at once, all attempts in step; pool: the domain's code in a pool of
    workers, each attempt on its own, for tools that take time; simulated: pi_env plays the tools
    (training only, evaluation executes them)."""
    timeout_s: float = Field(default=30.0, gt=0, le=86_400)
    """Longest step of a domain's tools in the pool; a longer one becomes a failed observation."""
    max_errors: int = Field(default=3, ge=1, le=1000)
    """Failed observations in a row after which an attempt counts as broken."""
    max_tokens: int = Field(default=96, ge=1, le=131_072)
    """Longest observation that pi_env writes in place of the tools, in tokens."""
    temperature: float = Field(default=1.0, gt=0, le=2)
    """Sampling temperature of pi_env in place of the tools."""

    @model_validator(mode="after")
    def _used(self) -> Self:
        useless = {
            "inline": ("timeout_s", "max_tokens", "temperature"),
            "pool": ("max_tokens", "temperature"),
            "simulated": (),
        }
        for name in useless[self.execution]:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"tools.{name} does nothing with tools.execution {self.execution}: remove it "
                    "or change the execution"
                )
        return self


class MixtureConfig(_Section):
    """What an agent update trains on: shares of its groups, drawn from D_train."""

    new: float = Field(default=0.6, ge=0, le=1)
    """Share of this epoch's generated tasks."""
    base: float = Field(default=0.2, ge=0, le=1)
    """Share of base tasks, attempted again by the current agent."""
    history: float = Field(default=0.2, ge=0, le=1)
    """Share of stored groups of earlier epochs."""
    max_policy_age: int = Field(default=2, ge=1, le=1000)
    """Oldest admissible group of the history share, in policy versions behind the current one."""

    @model_validator(mode="after")
    def _sum(self) -> Self:
        total = self.new + self.base + self.history
        if abs(total - 1) > 1e-9:
            raise ValueError(f"mixture.new + base + history is {total:g} and must be 1")
        if self.new == 0:
            raise ValueError("mixture.new is 0: the agent would never learn from generated tasks")
        return self


class GrpoConfig(_Section):
    """Group-relative policy optimisation of pi_agent, computed by TRL's GRPOTrainer."""

    learning_rate: float = Field(default=1e-5, gt=0, le=1)
    """Learning rate, constant over an update."""
    passes: int = Field(default=2, ge=1, le=100)
    """Passes over the update's groups (TRL: num_iterations)."""
    groups_per_step: int = Field(default=8, ge=1, le=10_000)
    """Groups in one optimizer step; the last step of a pass may hold fewer."""
    micro_batch_rows: int = Field(default=64, ge=1, le=10_000)
    """Most rows in one forward and backward pass of a process; lower it when memory runs out."""
    max_groups: int = Field(default=64, ge=1, le=100_000)
    """Most groups an update draws from D_train, all sources together."""
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    """Lower clip of the probability ratio: 1 - clip_low."""
    clip_high: float = Field(default=0.28, gt=0, le=10)
    """Upper clip of the probability ratio: 1 + clip_high."""
    kl_coef: float = Field(default=0.0, ge=0, le=10)
    """Weight of the KL to the reference (the checkpoint that the update started from)."""
    scale_rewards: Literal["group", "none"] = "group"
    """Whether advantages are divided by the group's standard deviation."""
    loss_type: Literal["dapo", "grpo", "dr_grpo", "bnpo"] = "dapo"
    """How TRL normalises the token losses."""
    max_grad_norm: float = Field(default=1.0, gt=0, le=1000)
    """Gradient norm above which gradients are scaled down."""


class RwrConfig(_Section):
    """Reward-weighted regression of pi_env with a KL leash to the initial simulator."""

    lambda_: float = Field(default=1.0, ge=0, le=100, alias="lambda")
    """Temperature of the weight w = exp(lambda R_env); 0 weighs all rows alike."""
    learning_rate: float = Field(default=1e-3, gt=0, le=1)
    """Learning rate, constant over an update."""
    steps: int = Field(default=16, ge=1, le=100_000)
    """Most optimizer steps an update, each over all of its rows."""
    steps_per_row: float = Field(default=1.0, gt=0, le=100_000)
    """Most optimizer steps for each row of an update, so that few rows are not learned by heart."""
    micro_batch_rows: int = Field(default=64, ge=1, le=10_000)
    """Most rows in one forward and backward pass of a process; lower it when memory runs out."""
    max_grad_norm: float = Field(default=1.0, gt=0, le=1000)
    """Gradient norm above which gradients are scaled down."""
    kl_coef: float = Field(default=0.002, ge=0, le=100)
    """Weight of KL(pi_env || pi_env^0), nats a sequence, beside the NLL, nats a token."""
    kl_cap: float = Field(default=40.0, gt=0, le=1e6)
    """Largest KL to the initial simulator, nats a sequence, that an update may end on."""
    kl_cap_action: Literal["pull", "roll_back"] = "pull"
    """Above the cap: `pull` steps on the KL term alone until the KL is under it, and rolls back if
    it still is not at the end; `roll_back` restores the last state under it and stops."""
    window_epochs: int = Field(default=1, ge=1, le=1000)
    """Rows of D_env of the last this many epochs take part in an update. Older rows were written
    for a weaker agent; trained on again, they are memorised."""


class EvaluationConfig(_Section):
    """Held-out evaluation after each epoch."""

    samples: int = Field(default=1, ge=1, le=64)
    """Sampled attempts at each held-out task, at the rollout temperature."""
    greedy: bool = True
    """Whether each held-out task is also attempted greedily."""


class GatesConfig(_Section):
    """What closes the gate in front of a checkpoint; the last good one then stays current."""

    max_kl_env: float = Field(default=60.0, gt=0, le=1e6)
    """Largest KL of pi_env to the initial simulator, nats a sequence."""
    min_entropy: float = Field(default=0.005, ge=0, le=100)
    """Smallest mean token entropy of pi_agent in its update, nats."""
    min_reward_std: float = Field(default=0.0, ge=0, le=1)
    """Smallest standard deviation of the rewards of an agent update."""
    max_heldout_drop: float = Field(default=0.1, gt=0, le=1)
    """Largest drop of held-out success below the current checkpoint's, absolute."""


class ComputeConfig(_Section):
    """What runs the numbers; each of these changes results, so each is in the stage keys."""

    engine: Literal["transformers", "vllm"] = "transformers"
    """Sampling engine: transformers in this process, or vllm behind an HTTP server."""
    threads: int = Field(default=1, ge=1, le=256)
    """torch threads of a process. CPU results are bit-for-bit equal only for equal counts."""
    vllm: VllmConfig = Field(default_factory=lambda: VllmConfig())
    """Numbers of the engine vllm."""


class ExecutionConfig(_Section):
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


INLINE = "inline"
"""The placement of a stage that is computed in the process of its flow."""

Place = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=63)]


class PlacementConfig(_Section):
    """Where each stage is computed: `inline`, the flow's own process, or the name of a Prefect work
    pool. It changes no result, so it is in no stage key; a pool's processes need the same code, the
    same libraries and the same root as the flow."""

    bootstrap: Place = INLINE
    """Models and base data."""
    generate_tasks: Place = INLINE
    """pi_env writes tasks."""
    rollout: Place = INLINE
    """pi_agent attempts them."""
    score: Place = INLINE
    """Rewards; needs no accelerator."""
    filter: Place = INLINE
    """The difficulty band; needs no accelerator."""
    pool: Place = INLINE
    """Appending to D_train and D_env; needs no accelerator."""
    grpo_update: Place = INLINE
    """The update of pi_agent."""
    rwr_update: Place = INLINE
    """The update of pi_env."""
    evaluate: Place = INLINE
    """Held-out metrics."""
    publish: Place = INLINE
    """Gates and the epoch's summary; needs no accelerator. MLflow is always told by the flow."""
    poll_seconds: float = Field(default=2.0, ge=0.1, le=60)
    """Time between two looks at a stage on a pool."""
    start_seconds: float = Field(default=1800.0, ge=1, le=604_800)
    """Longest wait for a pool to begin with a stage (a free worker, a node, an image); after it the
    stage fails with what it was waiting for."""
    lost_seconds: float = Field(default=300.0, ge=1, le=86_400)
    """How long a begun stage may show no sign of life, and how long the Prefect API may not answer,
    before the stage counts as lost."""

    def pools(self) -> dict[str, str]:
        """Return stage -> work pool of the stages that are not inline."""
        known = {name: getattr(self, name) for name in STAGES}
        return {name: place for name, place in known.items() if place != INLINE}


StageName = Literal[
    "bootstrap",
    "generate_tasks",
    "rollout",
    "score",
    "filter",
    "pool",
    "grpo_update",
    "rwr_update",
    "evaluate",
    "publish",
]
STAGES: tuple[StageName, ...] = get_args(StageName)
"""Every stage, in the order of a run."""


class TrackingConfig(_Section):
    """MLflow."""

    enabled: bool = True
    """Whether runs, metrics and model versions are logged to MLflow."""
    uri: str | None = None
    """MLflow tracking URI, such as http://host:5000; None: the environment's MLFLOW_TRACKING_URI,
    else a SQLite database under the root. Credentials only by MLflow's environment variables."""
    upload: bool = False
    """Whether the files of published checkpoints are uploaded to a server that tracks elsewhere;
    else its model versions hold a reference and a digest."""
    experiment: str = Field(default="genenv", min_length=1, max_length=200)
    """MLflow experiment; registered models are named after it: <experiment>-agent, -env."""

    @field_validator("uri")
    @classmethod
    def _no_secret(cls, uri: str | None) -> str | None:
        """Refuse a password: the configuration is kept, shown and logged."""
        scheme, _, rest = (uri or "").partition("://")
        server = scheme.startswith("http")
        user, at, _ = (rest.partition("/")[0] if server else rest).rpartition("@")
        if (at and (server or ":" in user)) or re.search("[?&](password|token)=", rest):
            raise ValueError(
                "tracking.uri holds a password: leave it out, and set MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD (or all of it as MLFLOW_TRACKING_URI) where runs start"
            )
        return uri


class RunConfig(_Section):
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
