"""Updates as files: a request names checkpoints and rows, its result a checkpoint and metrics.

Both are JSON-able pydantic models, so the same call runs in this process, in a worker process, or
under `accelerate launch`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from genenv_core.config.sections.training import TrainingConfig
from genenv_core.config.sections.updates import GrpoConfig, RwrConfig
from genenv_core.config.sections.warm_start import WarmStartConfig
from genenv_core.importing import load
from genenv_core.record import Record
from genenv_core.types import Policy
from schemas.enums import UpdateAction

LossName = Literal["grpo", "rwr", "warm_start"]
"""A loss, which is also the section of the configuration with its settings."""


def of_env(training: TrainingConfig) -> TrainingConfig:
    """Return the training settings of pi_env's update.

    Its KL cap copies and moves weights, which DeepSpeed keeps in its own pieces.
    """
    if training.strategy != "zero3":
        return training
    return training.model_copy(update={"strategy": "fsdp2"})


def of_warm_start(training: TrainingConfig) -> TrainingConfig:
    """Return the training settings of a warm start, sharded as pi_env's update is.

    Adapters are merged: the game's own begin at a first checkpoint without one, because a KL to it
    switches them off.
    """
    settings = of_env(training)
    if not settings.lora.rank:
        return settings
    return settings.model_copy(update={"lora": settings.lora.model_copy(update={"merge": True})})


class TrainerCheckpoints(Record):
    """Where an update keeps its trainer checkpoints, and how often it makes one.

    `folder` is this update's alone. `seconds` is the least time between two checkpoints; 0 means
    one after every optimizer step.
    """

    folder: Path
    seconds: float = Field(ge=0)


class UpdateRequest(Record):
    """One update of a policy on stored rows; each loss has a request of its own.

    The update starts from `checkpoint` and saves the policy in `output`, with its tokenizer. `rows`
    is a Parquet file. With `checkpoints`, a killed update continues from the last one and ends on
    the same bits. `gradient_checkpointing` changes none of them. Each finished step appends its
    loss to the file `noted`, if one is given (`warm_start.request.note_step`); an update that
    continues first writes the losses of the steps before into it.
    """

    loss: ClassVar[LossName]
    policy: ClassVar[Policy]

    checkpoint: Path
    output: Path
    rows: Path
    settings: GrpoConfig | RwrConfig | WarmStartConfig
    training: TrainingConfig = TrainingConfig()
    gradient_checkpointing: bool = False
    seed: int
    threads: int
    checkpoints: TrainerCheckpoints | None = None
    noted: Path | None = None

    @property
    def what(self) -> str:
        """Name the update in messages."""
        return f"{self.loss.upper()} update of pi_{self.policy.value} from {self.checkpoint}"

    @property
    def models(self) -> list[Path]:
        """Return the checkpoints that the update reads."""
        return [self.checkpoint]

    def with_micro_batch(self, rows: int) -> Self:
        """Return the request with at most this many rows in a micro-batch."""
        settings = self.settings.model_copy(update={"micro_batch_rows": rows})
        return self.model_copy(update={"settings": settings})


class GrpoRequest(UpdateRequest):
    """One GRPO update of pi_agent on stored rollouts.

    A row is a rollout, whole groups adjacent: `group_id` str, `prompt_ids` list<int32>,
    `completion_ids` list<int32>, `logprobs` list<float32> (under the policy that sampled them),
    `loss_mask` list<int8> (1 = sampled by the agent), `reward` float64, `truncated` bool (a limit
    of length or turns ended it). Every group has the same number of rows and unequal rewards.
    `reference` is the checkpoint of pi_agent^0 where the KL term is to it (`grpo.kl_reference`
    bootstrap); None: the KL is to the checkpoint that the update starts from.
    """

    loss = "grpo"
    policy = Policy.AGENT

    # A frozen record's field may be narrower than its base's.
    settings: GrpoConfig  # pyright: ignore[reportIncompatibleVariableOverride]
    group_size: int
    temperature: float
    reference: Path | None = None

    @property
    def models(self) -> list[Path]:
        return [self.checkpoint, *([self.reference] if self.reference else [])]

    @model_validator(mode="after")
    def _as_set(self) -> Self:
        if (self.reference is None) != (self.settings.kl_reference == "start"):
            raise ValueError(
                f"reference {self.reference}, grpo.kl_reference {self.settings.kl_reference}: "
                "give the checkpoint of pi_agent^0 with bootstrap, and none with start"
            )
        return self


class RwrRequest(UpdateRequest):
    """One reward-weighted regression of pi_env.

    A row is a generation: `row_id` str, `prompt_ids` list<int32>, `completion_ids` list<int32>,
    `weight` float64 (0 for a row that only the KL uses; mean 1 over the others), `leash` bool
    (whether the KL is computed along it). `initial` is the checkpoint of pi_env^0, the reference of
    the KL term.
    """

    loss = "rwr"
    policy = Policy.ENV

    settings: RwrConfig  # pyright: ignore[reportIncompatibleVariableOverride]
    initial: Path

    @property
    def models(self) -> list[Path]:
        return [self.checkpoint, self.initial]


class SftRequest(UpdateRequest):
    """Supervised steps of a given policy on examples: one round of its warm start.

    A row is an example: `row_id` str, `prompt_ids` list<int32>, `completion_ids` list<int32>, the
    token that ends the turn included. Their number is a multiple of `settings.batch_rows`, and each
    such batch is one optimizer step.

    All rounds are one optimization from the same `checkpoint`. A round `leaves` its weights
    (adapters, with LoRA) and Adam's moments in a folder, and the next one `follows` that folder.
    """

    loss = "warm_start"

    policy: Policy  # pyright: ignore[reportIncompatibleVariableOverride]
    settings: WarmStartConfig  # pyright: ignore[reportIncompatibleVariableOverride]
    follows: Path | None = None
    leaves: Path | None = None

    @property
    def models(self) -> list[Path]:
        return [self.checkpoint, *([self.follows] if self.follows else [])]

    @property
    def what(self) -> str:
        return f"warm start of pi_{self.policy.value} from {self.checkpoint}"


class UpdateResult(Record):
    """What an update did. `metrics` are finite floats, last value of each unless named otherwise.

    GRPO metrics: loss, kl (to the reference, 0 when off), entropy, ratio_mean, ratio_max,
    clip_fraction, grad_norm, reward_mean, reward_std, and with `grpo.max_mismatch` the share of
    sampled tokens that it leaves out, mismatch_masked. RWR metrics: loss, nll, kl_leash (nats a
    sequence, to pi_env^0, after the update, along the rows on the leash), kl_cap_hits, rolled_back
    (0/1), grad_norm. Metrics of a warm start: loss, grad_norm. On a GPU all have liger_kernels
    (0/1).
    `micro_batch_rows` is the number of rows of a micro-batch that fitted into the memory.
    `resumed_at` is the number of optimizer steps done before the trainer checkpoint. It is for the
    log alone: the rest of a result must not show whether an update was interrupted.
    """

    steps: int
    checkpoint: Path
    metrics: dict[str, float]
    action: UpdateAction
    note: str = ""
    micro_batch_rows: int
    resumed_at: int = 0


LOSSES: dict[LossName, tuple[type[UpdateRequest], str]] = {
    "grpo": (GrpoRequest, "genenv_core.training.grpo.trainer"),
    "rwr": (RwrRequest, "genenv_core.training.rwr.trainer"),
    "warm_start": (SftRequest, "genenv_core.training.sft.trainer"),
}
"""What an update is asked with, and the module whose `update(request, stop)` computes it.

By name: torch and TRL take ten seconds to load, and a run full of cache hits needs neither.
"""


def run_update(request: UpdateRequest, stop: Callable[[], bool] = lambda: False) -> UpdateResult:
    """Return what an update did, computed in this process; the policy is in `request.output`.

    `stop` is called after each optimizer step; True ends the update. On CPUs, updates are
    deterministic under seed and thread count. A process computes one at a time. Raises
    `TrainingError` when it cannot compute, `NumericalError` on NaN or inf, and `Stopped`.
    """
    return load(LOSSES[request.loss][1]).update(request, stop)


def lowered(result: UpdateResult, wanted: int) -> dict[str, int]:
    """Return the fact of an update with fewer rows in a micro-batch than configured, else {}.

    The number changes rounding and depends on the free memory, which is in no key.
    """
    rows = result.micro_batch_rows
    return {"micro_batch_rows": rows} if rows < wanted else {}
