"""The device memory that an update will need, estimated before it starts, and what fits into it.

Counted by dtype, sharding and LoRA: weights, gradients, Adam's two moments, copies (a reference,
the leash's way back, DDP's buckets, what FSDP gathers, autocast's casts), and for each row of a
micro-batch what the backward pass needs. The coefficients of a layer were measured in float32 on
the tensors that transformers 5.23 keeps for Qwen2 and Llama with SDPA attention (a test measures
them again); those of bfloat16 are bounds. On an H200 the estimates were 6 to 17 % above the
peak (docs/performance.md).

Rows with shared prefixes (`training.rows`) count as if they shared nothing: an upper
bound of what they need.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from genenv_core.config.sections.training import LoraConfig, Precision, TrainingConfig
from genenv_core.config.sections.updates import KlReference
from genenv_core.errors import ModelError, TrainingError
from genenv_core.machine.json_files import checkpoint_file, field_of
from genenv_core.training.requests import UpdateRequest
from genenv_core.training.updates.table import UPDATES

log = logging.getLogger("genenv.training")

Request = TypeVar("Request", bound=UpdateRequest)

GB = 1e9
USABLE = 0.92
"""Share of a device's memory that an update may fill; fragments take some of the rest."""
RUNTIME_BYTES = 1.5 * GB
"""CUDA's context and the buffers of cuBLAS and NCCL; a CPU has no such part."""

_LAYER = {"float32": (40, 16, 4), "bfloat16": (40, 11, 2)}
"""Bytes that a layer stores for a token: of each hidden unit, each MLP unit, each position
(mask)."""
_SHARED_MASK = 4
"""Bytes of each position for a token, stored once for all layers, in rows with shared prefixes: a
position there is one of the whole micro-batch."""
_INPUT_OF_LAYER = 4
"""Bytes of each hidden unit that gradient checkpointing stores of a layer for a token."""
_OUTSIDE = 12
"""Bytes of each hidden unit stored for a token before the first and behind the last layer."""
_WHOLE_LOGITS = 20
"""Bytes of each (completion token, vocabulary entry) where a loss has all logits at once, five
values in float32, as in an update with a cap on its KL: in a step the logprobs, their exponential,
the difference from the reference's, and the gradients of these two (logits are gone by then, and
the reference's logprobs too, where they are not kept for the next step); where the KL is measured,
both logprobs, the exponential, the difference, the product. A tiled loss with shared prefixes has
no more: the logprobs, their exponential, its product, gradients."""
REFERENCE_CACHE_VALUES = 2**24
"""Most reference logprobs that an update with a cap on its KL stores between steps, 64 MiB in
float32. Where there are more, it stores the output of the reference's last layer, unless that is
sharded."""
_TILE = 32768
"""Vocabulary entries that TRL's tiled head computes at once (its _CHUNKED_LOGPROB_CHUNK_SIZE)."""
_TILE_TOKENS = 4096
"""Tokens that TRL's tiled head computes at once."""
_BYTES_OF_TILE = {"float32": (33, 4), "bfloat16": (31, 2)}
"""Bytes of each (token, entry of a tile) in its backward pass, which begins while everything is
kept: on a CPU by torch (measured on TRL 1.16), on a GPU by a kernel that works in place."""

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""The fields with the number of experts, in configurations of models with several experts a
layer."""

_SIZES = (
    "num_attention_heads", "hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size",
)  # fmt: skip
"""Fields of config.json that the estimate needs."""


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """The sizes of a decoder that decide its memory."""

    hidden: int
    layers: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool
    attention_bias: bool
    stored_bytes: int
    """Bytes of a stored weight."""
    head: int
    """Width of an attention head: hidden / heads, or the model's own value, as in Qwen3."""
    head_norms: bool = False
    """Whether queries and keys pass through a norm, as in Qwen3."""

    @classmethod
    def read(cls, checkpoint: Path) -> DecoderShape:
        """Return the shape in a checkpoint's config.json; `ModelError` for other architectures."""
        config = checkpoint_file(checkpoint, "config.json")
        try:
            if config is None:
                raise ValueError("is missing")
            return cls.of(config)
        except ValueError as error:
            raise ModelError(
                f"checkpoint {checkpoint}: the memory of an update cannot be estimated: its "
                f"config.json {error}"
            ) from error

    @classmethod
    def of(cls, config: dict[str, Any]) -> DecoderShape:
        """Return the shape in the values of a config.json.

        Raises ValueError for other architectures; its text completes a sentence that begins with
        the file.
        """
        for name in _EXPERTS:
            if config.get(name):
                raise ValueError(f"has {name}: mixtures of experts are not counted")
        heads, hidden, layers, intermediate, vocabulary = (
            field_of(config, name, int) for name in _SIZES
        )
        stored = str(config.get("dtype") or config.get("torch_dtype") or "float32")
        return cls(
            hidden=hidden,
            layers=layers,
            intermediate=intermediate,
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            vocabulary=vocabulary,
            tied=bool(config.get("tie_word_embeddings", False)),
            attention_bias=config.get("model_type") == "qwen2",
            stored_bytes=2 if "16" in stored else 4,
            head=int(config.get("head_dim") or hidden // heads),
            head_norms=config.get("model_type") == "qwen3",
        )

    @property
    def kv(self) -> int:
        """Width of keys, and of values."""
        return self.head * self.kv_heads

    @property
    def queries(self) -> int:
        """Width of queries."""
        return self.head * self.heads

    @property
    def linear(self) -> tuple[tuple[int, int], ...]:
        """The linear layers of one decoder layer, (in, out)."""
        h, i, q, kv = self.hidden, self.intermediate, self.queries, self.kv
        return (h, q), (h, kv), (h, kv), (q, h), (h, i), (h, i), (i, h)

    @property
    def layer(self) -> int:
        """Weights of one decoder layer."""
        biases = self.queries + 2 * self.kv if self.attention_bias else 0
        norms = 2 * self.hidden + (2 * self.head if self.head_norms else 0)
        return sum(i * o for i, o in self.linear) + biases + norms

    @property
    def parameters(self) -> int:
        """Weights in all."""
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return embeddings + self.layers * self.layer + self.hidden

    def adapters(self, rank: int) -> int:
        """Return the weights of LoRA adapters on all linear layers."""
        return self.layers * rank * sum(i + o for i, o in self.linear)


@dataclass(frozen=True, slots=True)
class Job:
    """An update: its kind, the length of its rows, and the copies of the policy beside it."""

    loss: str
    shape: DecoderShape
    training: TrainingConfig
    row_tokens: int
    completion_tokens: int
    gradient_checkpointing: bool
    reference: KlReference | None
    """The KL's model that the device holds beside the policy; None: the KL needs no other
    weights."""
    rows: int = 1
    """Rows of a micro-batch, as configured."""
    leash_tokens: int = 0
    """Completion tokens of all rows along which a capped KL is computed."""
    leash_rows: int = 0
    """The number of those rows."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """The bytes on one device: by name those without any row, and those of one row."""

    fixed: dict[str, float]
    row: float

    def total(self, rows: int) -> float:
        """Return the bytes of an update with micro-batches of `rows` rows."""
        return sum(self.fixed.values()) + rows * self.row

    def largest(self, memory: float) -> int:
        """Return the most rows of a micro-batch that fit into `memory` bytes, 0 if none fits."""
        return max(0, int((memory * USABLE - sum(self.fixed.values())) // self.row))

    def line(self, rows: int) -> str:
        """Return the estimate in a line."""
        parts = [*self.fixed.items(), (f"activations of {rows} row(s)", rows * self.row)]
        listed = ", ".join(f"{name} {value / GB:.3g}" for name, value in parts if value)
        return f"{self.total(rows) / GB:.3g} GB ({listed})"


def reference_of(kl: KlReference | None, lora: LoraConfig, *, moved: bool) -> KlReference | None:
    """Return which model a KL to this checkpoint needs beside the policy, None for no further one.

    With adapters, the policy's own weights serve: with a copy of the adapter they are the start,
    and without an adapter the first checkpoint. After a merge of adapters the policy has `moved`,
    and its weights are no longer the first checkpoint's.
    """
    served = lora.rank and not (kl == "bootstrap" and lora.merge and moved)
    return None if served else kl


def estimate(job: Job) -> MemoryEstimate:
    """Return what each device of an update needs."""
    training, shape = job.training, job.shape
    shards = training.processes if training.sharded else 1
    half = training.precision == "bfloat16"
    every, lora = shape.parameters, training.lora.rank > 0
    trained = shape.adapters(training.lora.rank) if lora else every
    frozen_bytes = shape.stored_bytes if half else 4
    fixed: dict[str, float] = {
        "weights": (4 * trained + (every * frozen_bytes if lora else 0)) / shards,
        "gradients": 4 * trained / shards,
        "optimizer": 8 * trained / shards,
        "copies": _copies(job, trained, shards, frozen_bytes),
        "runtime": RUNTIME_BYTES if training.on_gpus else 0,
    }
    return MemoryEstimate(fixed=fixed, row=_row(job))


def _copies(job: Job, trained: int, shards: int, frozen_bytes: int) -> float:
    training, shape = job.training, job.shape
    half, lora = training.precision == "bfloat16", training.lora.rank > 0
    found = 0.0
    if job.reference:  # TRL loads the start as the policy is loaded, which then is in float32
        size = 4 if job.reference == "start" else frozen_bytes
        found += shape.parameters * size / shards
    if UPDATES[job.loss].capped:
        found += 4 * trained / shards  # the state under the KL cap
        found += 4 * _kept_of_reference(job)
    if training.strategy == "ddp":
        found += 4 * trained if training.processes > 1 else 0  # buckets
        cast = trained + (shape.parameters if lora and frozen_bytes == 4 else 0)
        found += 2 * cast if half else 0  # autocast's copies of weights that are float32
    else:
        width = 2 if half else 4
        found += width * (2 * shape.layer + 2 * shape.vocabulary * shape.hidden)
    if not lora:
        found += 4 * shape.vocabulary * shape.hidden  # the head's gradient while it is summed up
    return found


def _kept_of_reference(job: Job) -> int:
    """Return how many numbers of the reference an update with a cap on its KL stores."""
    logprobs = job.leash_tokens * job.shape.vocabulary
    if logprobs <= REFERENCE_CACHE_VALUES:
        return logprobs
    # Padding counts: the head reads all positions behind the shortest prompt of a micro-batch.
    states = job.leash_rows * job.row_tokens * job.shape.hidden
    return 0 if job.training.sharded else states


def _row(job: Job) -> float:
    shape, tokens = job.shape, job.row_tokens
    per_hidden, per_unit, per_position = _LAYER[job.training.precision]
    wide = max(shape.hidden, shape.queries)
    layer = per_hidden * wide + per_unit * shape.intermediate
    mask = 0
    if job.training.shares_rows:
        mask = _SHARED_MASK * job.rows * tokens
    else:
        layer += per_position * tokens
    layers = (
        shape.layers * _INPUT_OF_LAYER * shape.hidden + layer
        if job.gradient_checkpointing
        else shape.layers * layer
    )
    return tokens * (layers + mask + _OUTSIDE * shape.hidden) + _logits(job)


def _logits(job: Job) -> float:
    """Return the bytes that the head needs for a row."""
    vocabulary = job.shape.vocabulary
    if UPDATES[job.loss].whole_logits or job.training.shares_rows:
        return _WHOLE_LOGITS * vocabulary * job.completion_tokens
    by_torch, by_kernel = _BYTES_OF_TILE[job.training.precision]
    width = by_torch if job.training.device == "cpu" else by_kernel
    return width * min(job.row_tokens, _TILE_TOKENS) * min(vocabulary, _TILE)


def all_logits_fit(vocabulary: int, row: int, completion: int, precision: Precision) -> bool:
    """Return whether all logits of a padded row on a CPU take no more than its tiles would.

    The estimate counts the tiles. A vocabulary of one tile uses the tiles: its head costs little,
    and updates of the models that genenv makes keep their bits.
    """
    width, _ = _BYTES_OF_TILE[precision]
    tiles = width * min(row, _TILE_TOKENS) * _TILE
    return vocabulary > _TILE and _WHOLE_LOGITS * vocabulary * completion <= tiles


def remedies(job: Job) -> str:
    """Return the settings that would lower an update's need, each with the resulting need."""
    training = job.training
    wider = {"processes": max(2, 2 * training.processes), "strategy": "fsdp2"}
    changes: dict[str, Job] = {
        "execution.gradient_checkpointing=full": replace(job, gradient_checkpointing=True),
        "training.precision=bfloat16": _with(job, precision="bfloat16"),
        "training.lora.rank=32": _with(job, lora=LoraConfig(rank=32)),
    }
    if training.on_gpus:
        text = "training.processes={processes} with training.strategy={strategy}"
        changes[text.format(**wider)] = _with(job, **wider)
    now = estimate(job).total(1)
    found = {text: estimate(other).total(1) for text, other in changes.items()}
    lower = [f"{text} ({bytes_ / GB:.3g} GB)" for text, bytes_ in found.items() if bytes_ < now]
    length = UPDATES[job.loss].bound
    return ", or ".join([*lower, f"a lower {length}" if length else "shorter examples"])


def _with(job: Job, **changes: Any) -> Job:
    return replace(job, training=job.training.model_copy(update=changes))


def job_of(request: UpdateRequest) -> Job:
    """Return an update's sizes, from its model's config.json and its own rows."""
    prompt, ends = pl.col("prompt_ids").list.len(), pl.col("completion_ids").list.len()
    kind = UPDATES[request.loss]
    leash = ends.filter(pl.col("leash")).sum() if kind.capped else pl.lit(0)
    rows = pl.col("leash").sum() if kind.capped else pl.lit(0)
    row, completion, leash_tokens, leash_rows = (
        pl.scan_parquet(request.rows, glob=False)
        .select(row=(prompt + ends).max(), completion=ends.max(), leash=leash, rows=rows)
        .collect()
        .row(0)
    )
    return Job(
        loss=request.loss,
        shape=DecoderShape.read(request.checkpoint),
        training=request.training,
        row_tokens=int(row or 1),
        completion_tokens=int(completion or 1),
        gradient_checkpointing=request.gradient_checkpointing,
        reference=reference_of(
            kind.kl(request.settings), request.training.lora, moved=len(set(request.models)) > 1
        ),
        rows=request.settings.micro_batch_rows,
        leash_tokens=int(leash_tokens),
        leash_rows=int(leash_rows),
    )


def fitted(request: Request, memory: float | None) -> Request:
    """Return the request with as many rows in a micro-batch as fit into `memory` bytes.

    It never raises their number; None sets no limit. The number changes rounding and nothing else.
    The update's facts name a lowered one, because the memory is in no key. Raises `TrainingError`,
    before anything is loaded, when not even one row fits.
    """
    try:
        job = job_of(request)
    except ModelError as error:
        log.warning("%s; it starts all the same", error)
        return request
    needed, wanted = estimate(job), request.settings.micro_batch_rows
    rows = wanted if memory is None else min(wanted, needed.largest(memory))
    if rows < 1:
        raise TrainingError(too_small(job, needed, memory or 0))
    log.info(
        "update=%s device=%s processes=%d micro_batch_rows=%d estimated_memory=%s",
        job.loss, request.training.device, request.training.processes, rows, needed.line(rows),
    )  # fmt: skip
    return request.with_micro_batch(rows)


def too_small(job: Job, needed: MemoryEstimate, memory: float) -> str:
    """Return why an update does not fit into `memory` bytes of a device, and what to set."""
    return (
        f"the {UPDATES[job.loss].title} needs about {needed.line(1)} on each device for rows of "
        f"{job.row_tokens} tokens, and there are {memory / GB:.3g} GB: set {remedies(job)}"
    )
