"""What both updates of a run will need of a device, told before the run starts.

Before there are rows their lengths are taken as the longest that the configuration allows: for
pi_agent `rollout.max_length`; for pi_env `generation.max_tokens` behind a prompt of PROMPT tokens,
which no setting bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from genenv_core.config.models import ModelSizeConfig
from genenv_core.config.placement import INLINE
from genenv_core.config.schema import Arm, RunConfig
from genenv_core.devices import Gpu, gpus
from genenv_core.errors import ConfigError, ModelError
from genenv_core.storage.manifest import FileRef
from genenv_core.training.fitting import too_small
from genenv_core.training.memory import GB, Estimate, Job, Shape, Update, estimate

PROMPT = 1024
"""Tokens taken for the prompt of pi_env."""

_STAGES: dict[Update, str] = {"grpo": "grpo_update", "rwr": "rwr_update"}


@dataclass(frozen=True, slots=True)
class Need:
    """One update of a run, and what each of its devices needs."""

    stage: str
    job: Job
    estimate: Estimate
    rows: int
    """Rows of a micro-batch as configured."""

    def told(self) -> str:
        """Return the need in a line: with one row, which it cannot go below, and as configured."""
        least, asked = self.estimate.total(1) / GB, self.estimate.total(self.rows) / GB
        return (
            f"{self.stage}: {least:.3g} GB a device with micro-batches of 1 row, {asked:.3g} GB "
            f"with {self.rows}, for rows of {self.job.row_tokens} tokens"
        )


def needs(config: RunConfig, models: dict[str, FileRef | None]) -> list[Need]:
    """Return what the updates of a run need; none for those that its arm does not make."""
    made: list[Need] = []
    lora = config.training.lora.rank > 0
    length = config.rollout.max_length
    if config.arm is not Arm.BASE:
        rows, kl = config.grpo.micro_batch_rows, config.grpo.kl_coef > 0
        shape = _shape(models.get("agent_model"), config.bootstrap.agent)
        made += _need(config, "grpo", shape, rows, length, length, kl and not lora)
    if config.arm is Arm.GENENV:
        rows, written = config.rwr.micro_batch_rows, config.generation.max_tokens
        shape = _shape(models.get("env_model"), config.bootstrap.env)
        own = not lora or config.training.lora.merge
        made += _need(config, "rwr", shape, rows, PROMPT + written, written, own)
    return made


def check_needs(config: RunConfig, models: dict[str, FileRef | None]) -> list[Need]:
    """Return what the updates need; ConfigError when one cannot fit where it is to be computed.

    An update on a work pool, or on CPUs without a limit, is not judged here.
    """
    found = needs(config, models)
    for need in found:
        if (memory := _memory(config, need)) is not None and need.estimate.largest(memory) < 1:
            raise ConfigError(f"{need.stage}: {too_small(need.job, need.estimate, memory)}")
    return found


def _memory(config: RunConfig, need: Need) -> float | None:
    """Return the bytes of a device that this update may fill, None when nobody knows here."""
    training = config.training
    limit = None if training.memory_gb is None else training.memory_gb * GB
    if training.device == "cpu" or getattr(config.placement, need.stage) != INLINE:
        return limit
    have = gpus()
    if len(have) < training.processes:
        raise ConfigError(
            f"{need.stage} needs {training.processes} GPU(s) (training.device cuda, "
            f"training.processes {training.processes}) and this machine has {_listed(have)}: lower "
            f"training.processes, set placement.{need.stage} to a work pool, or training.device=cpu"
        )
    least = min(gpu.memory for gpu in have[: training.processes])
    return least if limit is None else min(limit, least)


def _listed(have: list[Gpu]) -> str:
    return ", ".join(f"{gpu.name} ({gpu.memory / GB:.0f} GB)" for gpu in have) or "none"


def _need(
    config: RunConfig,
    update: Update,
    shape: Shape | None,
    rows: int,
    tokens: int,
    completion: int,
    reference: bool,
) -> list[Need]:
    if shape is None:
        return []
    job = Job(
        update=update,
        shape=shape,
        training=config.training if update == "grpo" else config.training.of_env,
        row_tokens=tokens,
        completion_tokens=completion,
        gradient_checkpointing=config.execution.gradient_checkpointing == "full",
        reference=reference,
    )
    return [Need(_STAGES[update], job, estimate(job), rows)]


def _shape(model: FileRef | None, tiny: ModelSizeConfig) -> Shape | None:
    """Return the shape of a given model, or of the one that bootstrap makes; None: not known."""
    if model is not None:
        try:
            return Shape.read(Path(model.path))
        except ModelError:
            return None
    return Shape(
        hidden=tiny.hidden_size,
        layers=tiny.layers,
        intermediate=tiny.intermediate_size,
        heads=tiny.heads,
        kv_heads=tiny.heads,
        vocabulary=256,
        tied=True,
        attention_bias=False,
        stored_bytes=4,
        head=tiny.hidden_size // tiny.heads,
    )
