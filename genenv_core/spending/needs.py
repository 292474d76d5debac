"""Estimates before a run starts how much device memory its updates will need.

There are no rows yet, so it takes the longest lengths that the configuration allows: for pi_agent
`rollout.max_length`, for pi_env `generation.max_tokens` after the longest prompt that its domain
makes of the base data. An unknown prompt counts as PROMPT tokens. A warm start has the lengths of
its examples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from genenv_core.config.arms import ARMS
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.models import ModelSizeConfig
from genenv_core.config.sections.placement import INLINE
from genenv_core.config.stages import WARM
from genenv_core.domains.protocol import Domain
from genenv_core.errors import ConfigError, ModelError
from genenv_core.exchange.external import Given
from genenv_core.storage.records.manifest import FileRef
from genenv_core.training.memory.devices import Gpu, gpus
from genenv_core.training.memory.estimate import (
    GB,
    DecoderShape,
    Job,
    MemoryEstimate,
    estimate,
    reference_of,
    too_small,
)
from genenv_core.training.updates import warm_start
from genenv_core.training.updates.kind import UpdateKind
from genenv_core.training.updates.table import UPDATES, USUAL, agent_kind
from genenv_core.types import Policy

LIBRARIES_BYTES = 0.7 * GB
"""A process with torch, transformers and TRL, before it has a model (measured)."""
PROMPT = 1024
"""Tokens that count for a prompt of pi_env of unknown length."""


@dataclass(frozen=True, slots=True)
class Need:
    """One update of a run, and what each of its devices needs.

    `longest` says among which rows those of the job are the longest. A warm start is of one
    `policy`.
    """

    stage: str
    policy: Policy
    longest: str
    job: Job
    estimate: MemoryEstimate
    rows: int
    """Rows of a micro-batch as configured."""

    @property
    def name(self) -> str:
        """Return the name of the update in a list, where each given model has its warm start."""
        return f"{self.stage} of pi_{self.policy}" if self.stage == WARM else self.stage

    def line(self) -> str:
        """Return the need in a line: with one row, which is the least, and as configured."""
        least, asked = self.estimate.total(1) / GB, self.estimate.total(self.rows) / GB
        return (
            f"{self.name}: {least:.3g} GB a device with micro-batches of 1 row, {asked:.3g} GB "
            f"with {self.rows}, for rows of {self.job.row_tokens} tokens, the longest "
            f"{self.longest}"
        )


def needs(config: RunConfig, given: Given, domain: Domain) -> list[Need]:
    """Return what the updates of a run's arm need; its domain says how long prompts are."""
    made = [
        need
        for policy in config.warm_started
        for need in _warm_start(config, given, domain, policy)
    ]
    length, written = config.rollout.max_length, config.generation.max_tokens
    if ARMS[config.arm].trains_agent:
        shape = _in_game(config, Policy.AGENT, _shape(given.agent_model, config.bootstrap.agent))
        kind = agent_kind(config.agent_update)
        made += _need(config, Policy.AGENT, kind, shape, length, length, _allowed(kind))
    if ARMS[config.arm].trains_env:
        shape = _in_game(config, Policy.ENV, _shape(given.env_model, config.bootstrap.env))
        prompt = _env_prompt(config, given, domain) if shape else PROMPT
        rows, kind = prompt + written, USUAL[Policy.ENV]
        made += _need(config, Policy.ENV, kind, shape, rows, written, _allowed(kind))
    return made


def _allowed(kind: UpdateKind) -> str:
    """Return in words which rows are the longest of an update whose rows do not exist yet."""
    return f"that {kind.bound} allows"


def check_needs(config: RunConfig, found: list[Need]) -> None:
    """Raise ConfigError when one of these updates cannot fit into its device.

    It does not judge an update on a work pool, or on CPUs without a limit.
    """
    for need in found:
        if (memory := _memory(config, need)) is not None and need.estimate.largest(memory) < 1:
            raise ConfigError(f"{need.name}: {too_small(need.job, need.estimate, memory)}")


def lack_of_memory(config: RunConfig, found: list[Need], free: float) -> str:
    """Return a line where what computes at once on this machine's CPUs exceeds its free memory.

    In an epoch, both updates compute at once, or with `execution.updates_at_once` 1 the larger one,
    beside the run's own process, which samples from the larger model in float32. Before it, a warm
    start computes while the run's process has no model. '' where all fits, or where no update
    computes here on CPUs.
    """
    here = [need for need in found if config.placement.of(need.stage) == INLINE]
    if config.training.device != "cpu" or not here:
        return ""
    return _lack_in_game(config, here, free) or _lack_before(here, free)


def _lack_before(here: list[Need], free: float) -> str:
    """Return the line for the largest warm start, '' where it fits."""
    warm = {_taken(need) + LIBRARIES_BYTES: need.name for need in here if need.stage == WARM}
    needed = max(warm, default=0.0)
    if needed <= free:
        return ""
    remedy = f"lower {warm_start.UPDATE.rows_field}, or set "
    return _lack(needed, free, f"in the {warm[needed]}", remedy)


def _lack_in_game(config: RunConfig, here: list[Need], free: float) -> str:
    """Return the line for the updates of an epoch, '' where they fit."""
    both = [need for need in here if need.stage != WARM]
    if not both:
        return ""
    updates = {need.stage: _taken(need) for need in both}
    kinds = [UPDATES[need.job.loss] for need in both]
    own = LIBRARIES_BYTES + 4 * max(need.job.shape.parameters for need in here)
    largest = max(updates, key=updates.__getitem__)
    in_turn = updates[largest] + own
    if config.execution.updates_at_once == 1:
        updates = {largest: updates[largest]}
    needed = sum(updates.values()) + own
    if needed <= free:
        return ""
    parts = ", ".join(f"{name} {value / GB:.3g}" for name, value in updates.items())
    turns = f"execution.updates_at_once=1 ({in_turn / GB:.3g} GB), " if needed > in_turn else ""
    return _lack(
        needed,
        free,
        "at once, with rows as long as the settings allow "
        f"({parts}, the run's own process {own / GB:.3g})",
        f"shorten {' or '.join(str(kind.bound) for kind in kinds)}, lower "
        f"{' and '.join(kind.rows_field for kind in kinds)}, or set {turns}",
    )


def _lack(needed: float, free: float, when: str, remedy: str) -> str:
    """Return the line: the bytes needed and when, the free bytes, and a remedy."""
    return (
        f"up to {needed / GB:.3g} GB are needed {when}, and {free / GB:.3g} GB are free here: "
        f"{remedy}training.lora.rank or execution.gradient_checkpointing=full"
    )


def _taken(need: Need) -> float:
    """Return the bytes that the process of an update takes."""
    return need.estimate.total(need.rows) + LIBRARIES_BYTES


def _warm_start(config: RunConfig, given: Given, domain: Domain, policy: Policy) -> list[Need]:
    """Return what the warm start of a given model needs, [] where its examples are unknown."""
    from genenv_core.spending.prompts import longest_example  # loads domains

    model = given.agent_model if policy is Policy.AGENT else given.env_model
    try:
        longest = longest_example(config, domain, Path(model.path), policy) if model else None
    except ModelError:
        return []
    if model is None or longest is None:
        return []
    tokens, answer, what = longest
    shape = _shape(model, config.bootstrap.agent)
    return _need(config, policy, warm_start.UPDATE, shape, tokens, answer, f"of {what}")


def _env_prompt(config: RunConfig, given: Given, domain: Domain) -> int:
    """Return the tokens of pi_env's longest prompt, or `PROMPT` where they are unknown."""
    from genenv_core.spending.prompts import longest_prompt  # loads domains

    try:
        return longest_prompt(config, given, domain) or PROMPT
    except ModelError:
        return PROMPT


def _memory(config: RunConfig, need: Need) -> float | None:
    """Return the bytes of a device that this update may fill, None where unknown here."""
    training = config.training
    limit = None if training.memory_gb is None else training.memory_gb * GB
    if training.device == "cpu" or config.placement.of(need.stage) != INLINE:
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
    policy: Policy,
    kind: UpdateKind,
    shape: DecoderShape | None,
    tokens: int,
    completion: int,
    longest: str,
) -> list[Need]:
    if shape is None:
        return []
    training, settings = kind.training(config.training), getattr(config, kind.section)
    job = Job(
        loss=kind.request.loss,
        shape=shape,
        training=training,
        row_tokens=tokens,
        completion_tokens=completion,
        gradient_checkpointing=config.execution.gradient_checkpointing == "full",
        reference=reference_of(kind.kl(settings), training.lora, moved=True),
        rows=settings.micro_batch_rows,
        leash_tokens=settings.kl_rows * completion if kind.capped else 0,
        leash_rows=settings.kl_rows if kind.capped else 0,
    )
    return [Need(kind.stage, policy, longest, job, estimate(job), settings.micro_batch_rows)]


def _in_game(config: RunConfig, policy: Policy, shape: DecoderShape | None) -> DecoderShape | None:
    """Return the shape of the model that the game starts from: a warm start stores float32."""
    if shape is None or policy not in config.warm_started:
        return shape
    return replace(shape, stored_bytes=4)


def _shape(model: FileRef | None, tiny: ModelSizeConfig) -> DecoderShape | None:
    """Return the shape of a given model, or of the one that bootstrap makes; None: unknown."""
    if model is not None:
        try:
            return DecoderShape.read(Path(model.path))
        except ModelError:
            return None
    return DecoderShape(
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
