"""One measurement of `make bench-gpu`: its model, its rows and the arithmetic that it needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from genenv_core.config.sections.training import TrainingConfig
from genenv_core.training.memory.estimate import DecoderShape, Job

QWEN: dict[str, dict[str, Any]] = {
    "tiny": {"h": 64, "i": 176, "l": 2, "heads": 4, "kv": 2, "v": 512, "tied": True},
    "0.5B": {"h": 896, "i": 4864, "l": 24, "heads": 14, "kv": 2, "v": 151936, "tied": True},
    "1.5B": {"h": 1536, "i": 8960, "l": 28, "heads": 12, "kv": 2, "v": 151936, "tied": True},
    "SmolLM2": {"h": 576, "i": 1536, "l": 2, "heads": 9, "kv": 3, "v": 49152, "tied": True},
    "7B": {"h": 3584, "i": 18944, "l": 28, "heads": 28, "kv": 4, "v": 152064, "tied": False},
}
GROUP = 8
"""Rows of a group."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One measurement."""

    update: str
    who: str
    shape: str
    device: str
    rows: int
    micro: int
    prompt: int
    completion: int
    steps: int
    lora: int
    kernels: str = "torch"
    limit_s: float = 300.0
    layout: Literal["padded", "shared"] = "padded"
    precision: Literal["float32", "bfloat16"] | None = None
    """None: bfloat16 on a GPU."""


def config_of(name: str) -> Any:
    """Return the Qwen2 configuration of a shape."""
    from transformers import Qwen2Config

    s = QWEN[name]
    return Qwen2Config(
        vocab_size=s["v"],
        hidden_size=s["h"],
        intermediate_size=s["i"],
        num_hidden_layers=s["l"],
        num_attention_heads=s["heads"],
        num_key_value_heads=s["kv"],
        tie_word_embeddings=s["tied"],
        max_position_embeddings=32768,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )


def training_of(plan: Plan) -> TrainingConfig:
    """Return the training settings of both trainers."""
    usual = "bfloat16" if plan.device == "cuda" else "float32"
    values = {"device": plan.device, "precision": plan.precision or usual, "rows": plan.layout}
    values |= {"lora": {"rank": plan.lora}, "kernels": plan.kernels}
    return TrainingConfig.model_validate(values)


def frozen_in_half(plan: Plan) -> bool:
    """Return whether frozen weights below adapters are in bfloat16, as checkpoints have them."""
    return bool(plan.lora) and plan.device == "cuda"


def job_of(plan: Plan) -> Job:
    """Return the plan as a job whose memory can be estimated."""
    shape = DecoderShape.of(config_of(plan.shape).to_dict())
    return Job(
        loss="grpo" if plan.update == "grpo" else "rwr",
        shape=replace(shape, attention_bias=True, stored_bytes=2 if frozen_in_half(plan) else 4),
        training=training_of(plan),
        row_tokens=plan.prompt + plan.completion,
        completion_tokens=plan.completion,
        gradient_checkpointing=plan.device == "cuda",
        reference="bootstrap" if plan.update == "rwr" and not plan.lora else None,
    )


def rows_of(plan: Plan) -> list[dict[str, Any]]:
    """Return random rows of unequal lengths: completions of half to all of the given tokens."""
    generator = torch.Generator().manual_seed(0)
    size = QWEN[plan.shape]["v"]

    def ids(count: int) -> list[int]:
        return torch.randint(2, size, (count,), generator=generator).tolist()

    rows: list[dict[str, Any]] = []
    for index in range(plan.rows):
        low = plan.completion // 2
        length = int(torch.randint(low, plan.completion + 1, (1,), generator=generator))
        shared = rows[-1]["prompt_ids"] if index % GROUP else ids(plan.prompt)
        rows.append({"prompt_ids": shared, "completion_ids": [*ids(length - 1), 1]})
    return rows


def flops(plan: Plan) -> float:
    """Return the FLOPs a token of the products with the weights."""
    shape = job_of(plan).shape
    looked_up = 0 if shape.tied else shape.vocabulary * shape.hidden
    return (4 if plan.lora else 6) * (shape.parameters - looked_up)
