"""Builders for the training tests: a tiny random policy on disk, rows as Parquet files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from genenv_core.config.sections.updates import GrpoConfig, RwrConfig
from genenv_core.config.sections.warm_start import WarmStartConfig
from genenv_core.training.loop.steps import StepTrainer
from genenv_core.training.updates.grpo import GrpoRequest
from genenv_core.training.updates.rwr import RwrRequest
from genenv_core.training.updates.warm_start import SftRequest
from genenv_core.types import Policy

VOCABULARY = 40
PAD, EOS = 0, 1

Gradient = dict[str, torch.Tensor]
"""Of each trained weight, by its name."""


def tiny_checkpoint(
    path: Path, *, seed: int = 0, hidden: int = 32, layers: int = 2, vocabulary: int = VOCABULARY
) -> Path:
    """Return `path`, now a complete checkpoint of a random Qwen2 model with a word tokenizer."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = Qwen2Config(
            vocab_size=vocabulary,
            hidden_size=hidden,
            intermediate_size=hidden * 5 // 2,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=256,
            pad_token_id=PAD,
            eos_token_id=EOS,
            bos_token_id=None,
            initializer_range=0.3,
        )
        model = Qwen2ForCausalLM(config)
    words = {"<pad>": PAD, "<eos>": EOS} | {f"w{i}": i for i in range(2, vocabulary)}
    inner = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>"
    )
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


MODEL_BYTES = 9.8e6
"""A policy of 2.4 million weights: what is left of it shows beside everything else."""


def weighty_checkpoint(path: Path) -> Path:
    """Return `path`, now a checkpoint whose weights have `MODEL_BYTES`, within a tenth."""
    made = tiny_checkpoint(path, seed=1, hidden=224, layers=4)
    weights = (made / "model.safetensors").stat().st_size
    assert weights == pytest.approx(MODEL_BYTES, rel=0.1)
    return made


def load(path: Path) -> Any:
    """Return the model of a checkpoint in evaluation mode."""
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def weights(path: Path) -> dict[str, torch.Tensor]:
    """Return the weights of a checkpoint by name."""
    return {name: p.detach().clone() for name, p in load(path).named_parameters()}


def token_logits(model: Any, row: dict[str, Any]) -> torch.Tensor:
    """Return the logits that predict each completion token of one row alone, shape (T, V)."""
    ids = torch.tensor([[*row["prompt_ids"], *row["completion_ids"]]])
    start = len(row["prompt_ids"]) - 1
    return model(input_ids=ids).logits[0, start:-1]


def token_logprobs(model: Any, row: dict[str, Any], temperature: float = 1.0) -> torch.Tensor:
    """Return the logprob of each completion token of one row scored alone, shape (T,)."""
    scaled = (token_logits(model, row) / temperature).log_softmax(-1)
    return scaled.gather(1, torch.tensor(row["completion_ids"]).unsqueeze(1)).squeeze(1)


def moved(policy: Path, seed: int) -> Any:
    """Return the model of a checkpoint with a little noise on every weight."""
    model, generator = load(policy), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    return model


def noted_gradients(patch: pytest.MonkeyPatch) -> list[Gradient]:
    """Return a list that fills with the gradient of each optimizer step of every trainer."""
    seen: list[Gradient] = []
    original = StepTrainer._get_grad_norm

    def record(self: Any, model: Any, grad_norm: Any = None) -> float:
        named = model.named_parameters()
        seen.append({name: p.grad.clone() for name, p in named if p.grad is not None})
        return original(self, model, grad_norm)

    patch.setattr(StepTrainer, "_get_grad_norm", record)
    return seen


def relative_error(actual: Gradient, expected: Gradient) -> float:
    """Return how far gradients are apart, in the length of the expected one."""
    assert actual.keys() == expected.keys()
    difference = sum(float((actual[n] - expected[n]).square().sum()) for n in actual)
    return math.sqrt(difference / sum(float(g.square().sum()) for g in expected.values()))


def random_rows(
    count: int,
    *,
    seed: int = 0,
    prompt: tuple[int, int] = (3, 7),
    completion: tuple[int, int] = (2, 9),
    vocabulary: int = VOCABULARY,
) -> list[dict[str, Any]]:
    """Return rows of random prompt and completion ids; lengths lie within the given bounds."""
    generator = torch.Generator().manual_seed(seed)

    def draw(bounds: tuple[int, int]) -> list[int]:
        length = int(torch.randint(bounds[0], bounds[1] + 1, (1,), generator=generator))
        return torch.randint(2, vocabulary, (length,), generator=generator).tolist()

    return [
        {"prompt_ids": draw(prompt), "completion_ids": [*draw(completion), EOS]}
        for _ in range(count)
    ]


def grpo_rows(
    groups: int,
    size: int,
    *,
    sampler: Any,
    seed: int = 0,
    temperature: float = 1.0,
    masked: bool = False,
    **shape: Any,
) -> list[dict[str, Any]]:
    """Return whole groups scored by `sampler`; with `masked`, every third token is masked."""
    rows = random_rows(groups * size, seed=seed, **shape)
    generator = torch.Generator().manual_seed(seed + 1)
    for index, row in enumerate(rows):
        group = index // size
        row["prompt_ids"] = rows[group * size]["prompt_ids"]
        length = len(row["completion_ids"])
        mask = [0 if masked and position % 3 == 1 else 1 for position in range(length)]
        with torch.no_grad():
            logprobs = token_logprobs(sampler, row, temperature).tolist()
        reward = float(torch.rand(1, generator=generator))
        row |= {
            "group_id": f"g{group:03d}",
            "logprobs": [p if m else 0.0 for p, m in zip(logprobs, mask, strict=True)],
            "loss_mask": mask,
            "reward": reward if index % size else 1.5,
            "truncated": False,
        }
    return rows


def write_grpo(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Return `path`, now the Parquet file of GRPO rows with the types of the contract."""
    types = {
        "group_id": pl.String,
        "prompt_ids": pl.List(pl.Int32),
        "completion_ids": pl.List(pl.Int32),
        "logprobs": pl.List(pl.Float32),
        "loss_mask": pl.List(pl.Int8),
        "reward": pl.Float64,
        "truncated": pl.Boolean,
    }
    pl.DataFrame(rows, schema=types).write_parquet(path)
    return path


def rwr_rows(count: int, *, seed: int = 0, **shape: Any) -> list[dict[str, Any]]:
    """Return generations with random weights of mean 1, all on the leash."""
    rows = random_rows(count, seed=seed, **shape)
    generator = torch.Generator().manual_seed(seed + 2)
    raw = torch.rand(count, generator=generator, dtype=torch.float64) + 0.5
    for index, (row, weight) in enumerate(zip(rows, (raw / raw.mean()).tolist(), strict=True)):
        row |= {"row_id": f"r{index:03d}", "weight": weight, "leash": True}
    return rows


def mixed_rows(count: int, **options: Any) -> list[dict[str, Any]]:
    """Return generations of which a third is trained alone, a third has the KL alone."""
    rows = rwr_rows(count, **options)
    for row in rows[::3]:
        row["leash"] = False
    for row in rows[1::3]:
        row["weight"] = 0.0
    mean = sum(row["weight"] for row in rows) / sum(row["weight"] > 0 for row in rows)
    return [row | {"weight": row["weight"] / mean} for row in rows]


def write_rwr(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Return `path`, now the Parquet file of RWR rows with the types of the contract."""
    types = {
        "row_id": pl.String,
        "prompt_ids": pl.List(pl.Int32),
        "completion_ids": pl.List(pl.Int32),
        "weight": pl.Float64,
        "leash": pl.Boolean,
    }
    pl.DataFrame(rows, schema=types).write_parquet(path)
    return path


def grpo_of(
    home: Path, name: str, rows: list[dict[str, Any]], checkpoint: Path, **values: Any
) -> GrpoRequest:
    """Return an update of `checkpoint` on `rows`, to be saved in `home / name`.

    `values` are fields of the request, or of its settings.
    """
    fields = {"group_size": 4, "temperature": 1.0, "seed": 0, "threads": 1}
    own, settings = _parted(GrpoRequest, fields | values)
    return GrpoRequest(
        checkpoint=checkpoint,
        output=home / name,
        rows=write_grpo(home / f"{name}.parquet", rows),
        settings=GrpoConfig(**settings),
        **own,
    )


def rwr_of(
    home: Path,
    name: str,
    rows: list[dict[str, Any]],
    checkpoint: Path,
    initial: Path,
    **values: Any,
) -> RwrRequest:
    """Return a regression of `checkpoint` on `rows` near `initial`, saved in `home / name`.

    `values` are fields of the request, or of its settings.
    """
    own, settings = _parted(RwrRequest, {"seed": 0, "threads": 1} | values)
    return RwrRequest(
        checkpoint=checkpoint,
        initial=initial,
        output=home / name,
        rows=write_rwr(home / f"{name}.parquet", rows),
        settings=RwrConfig(**settings),
        **own,
    )


def sft_of(
    home: Path, name: str, rows: list[dict[str, Any]], checkpoint: Path, **values: Any
) -> SftRequest:
    """Return a round of a warm start of `checkpoint` on `rows`, saved in `home / name`.

    `values` are fields of the request, or of its settings.
    """
    fields = {"policy": Policy.AGENT, "seed": 0, "threads": 1, "steps": 1000}
    own, settings = _parted(SftRequest, fields | values)
    types = {
        "row_id": pl.String,
        "prompt_ids": pl.List(pl.Int32),
        "completion_ids": pl.List(pl.Int32),
    }
    named = [row | {"row_id": f"r{index:03d}"} for index, row in enumerate(rows)]
    path = home / f"{name}.parquet"
    pl.DataFrame(named, schema=types).write_parquet(path)
    return SftRequest(
        checkpoint=checkpoint,
        output=home / name,
        rows=path,
        settings=WarmStartConfig(**settings),
        **own,
    )


def _parted(
    kind: type[GrpoRequest | RwrRequest | SftRequest], values: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values that are fields of a request, and the other values."""
    own = {name: value for name, value in values.items() if name in kind.model_fields}
    return own, {name: value for name, value in values.items() if name not in own}
