"""The Trainer protocol and its requests: files in, a checkpoint directory and metrics out.

Requests and results are JSON-able pydantic models that name files, so the same call runs in this
process, in a worker process, or under `accelerate launch`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from genenv_core.config.training import TrainingConfig
from genenv_core.config.updates import GrpoConfig, RwrConfig


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TrainerCheckpoints(_Record):
    """Where an update keeps its trainer checkpoints, and how often it makes one.

    `folder` belongs to this update alone. `seconds` is the least time between two checkpoints; 0:
    one after every optimizer step.
    """

    folder: Path
    seconds: float = Field(ge=0)


class GrpoRequest(_Record):
    """One GRPO update on stored rollouts.

    `rows` is a Parquet file, one row a rollout, whole groups adjacent: `group_id` str,
    `prompt_ids` list<int32>, `completion_ids` list<int32>, `logprobs` list<float32> (under the
    policy that sampled them), `loss_mask` list<int8> (1 = sampled by the agent), `reward` float64.
    Every group has the same number of rows and unequal rewards. With `checkpoints`, an update that
    was killed continues from the last one, and ends on the same bits. `gradient_checkpointing`
    changes none of them.
    """

    checkpoint: Path
    output: Path
    rows: Path
    settings: GrpoConfig
    training: TrainingConfig = TrainingConfig()
    gradient_checkpointing: bool = False
    group_size: int
    temperature: float
    seed: int
    threads: int
    checkpoints: TrainerCheckpoints | None = None


class RwrRequest(_Record):
    """One reward-weighted regression of pi_env.

    `rows` is a Parquet file, one row a generation: `row_id` str, `prompt_ids` list<int32>,
    `completion_ids` list<int32>, `weight` float64 (mean 1 over the rows).
    `initial` is the checkpoint of pi_env^0, the reference of the KL term. `checkpoints` is as in
    `GrpoRequest`.
    """

    checkpoint: Path
    initial: Path
    output: Path
    rows: Path
    settings: RwrConfig
    training: TrainingConfig = TrainingConfig()
    gradient_checkpointing: bool = False
    seed: int
    threads: int
    checkpoints: TrainerCheckpoints | None = None


class UpdateResult(_Record):
    """What an update did. `metrics` are finite floats, last value of each unless named otherwise.

    GRPO metrics: loss, kl (to the reference, 0 when off), entropy, ratio_mean, ratio_max,
    clip_fraction, grad_norm, reward_mean, reward_std. RWR metrics: loss, nll, kl_env (nats a
    sequence, to pi_env^0, after the update), kl_cap_hits, rolled_back (0/1), grad_norm. On a GPU
    both have liger_kernels (0/1).
    `resumed_at` is the number of optimizer steps taken over from a trainer checkpoint: for the log
    alone, because nothing else of a result may tell whether an update was interrupted.
    """

    steps: int
    checkpoint: Path
    metrics: dict[str, float]
    action: Literal["updated", "pulled", "rolled_back"]
    note: str = ""
    resumed_at: int = 0


class Trainer(Protocol):
    """Computes updates. Deterministic under seed and thread count on CPU.

    Raises `TrainingError` when an update cannot be computed, `NumericalError` on NaN or inf, and
    `Stopped` when it was asked to stop.
    """

    def grpo(self, request: GrpoRequest) -> UpdateResult:
        """Return the agent after one GRPO update, saved in `request.output` (with tokenizer)."""
        ...

    def rwr(self, request: RwrRequest) -> UpdateResult:
        """Return pi_env after one RWR update, saved in `request.output` (with tokenizer)."""
        ...
