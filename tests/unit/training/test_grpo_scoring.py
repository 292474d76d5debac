"""How GRPO scores stored rows: padded ones on a CPU, and those of the reference.

Invariants: where all logits of padded rows take no more memory than TRL's tiles, a step on a CPU
computes those of the completions alone, with the same gradient but for rounding; the reference
scores each row once, whatever the number of passes; a model that has a weight for each position
has the logprobs of each row alone, whatever stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BioGptConfig,
    BioGptForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    OPTConfig,
    OPTForCausalLM,
    XGLMConfig,
    XGLMForCausalLM,
)

from genenv_core.training.grpo import stored
from genenv_core.training.loop.steps import StepTrainer
from genenv_core.training.memory.estimate import all_logits_fit
from genenv_core.training.updates.table import run_update
from tests.examples import some
from tests.mutations import mutation
from tests.unit.training.builders_training import (
    VOCABULARY,
    grpo_of,
    grpo_rows,
    load,
    relative_error,
    tiny_checkpoint,
)

STORED = "genenv_core/training/grpo/stored.py"
ESTIMATE = "genenv_core/training/memory/estimate.py"
REFERENCE = "genenv_core/training/grpo/reference.py"

SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
POSITIONS: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**SHAPE, initializer_range=0.3)),
    "opt": lambda: OPTForCausalLM(OPTConfig(**SHAPE, word_embed_proj_dim=32, init_std=0.3)),
    "xglm": lambda: XGLMForCausalLM(XGLMConfig(**SHAPE, init_std=0.3)),
    "biogpt": lambda: BioGptForCausalLM(BioGptConfig(**SHAPE, initializer_range=0.3)),
}
"""Architectures with learned positions."""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("scoring") / "policy", seed=1)


@mutation(
    "padded rows on a CPU are scored by TRL's head", STORED,
    "return on_cpu and all_logits_fit(", "return False and all_logits_fit(",
)  # fmt: skip
@mutation(
    "logits of a padded row are taken one position late",
    "genenv_core/training/policies/completions.py",
    "made.logits[:, :-1][real[:, split:]]", "made.logits[:, 1:][real[:, split:]]",
)  # fmt: skip
def test_padded_rows_on_a_cpu_have_the_gradient_of_the_tiled_head(
    tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = grpo_rows(3, 4, sampler=load(policy), masked=True)
    called: list[bool] = []
    gradients: list[dict[str, Any]] = []
    score, norm = stored.completion_logprobs, StepTrainer._get_grad_norm

    def count(*given: Any, shared: bool) -> Any:
        called.append(shared)
        return score(*given, shared=shared)

    def record(self: Any, model: Any, grad_norm: Any = None) -> float:
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters()})
        return norm(self, model, grad_norm)

    monkeypatch.setattr(stored, "completion_logprobs", count)
    monkeypatch.setattr(StepTrainer, "_get_grad_norm", record)
    results = []
    for fits in (False, True):
        monkeypatch.setattr(stored, "all_logits_fit", lambda *_, fits=fits: fits)
        settings = {"passes": 1, "micro_batch_rows": 3, "kl_coef": 0.1, "temperature": 0.7}
        results.append(run_update(grpo_of(tmp_path, f"out-{fits}", rows, policy, **settings)))
        assert bool(called) is fits and True not in called
    assert relative_error(gradients[len(gradients) // 2], gradients[0]) < 1e-5
    for name, value in results[0].metrics.items():
        assert results[1].metrics[name] == pytest.approx(value, rel=1e-3, abs=1e-6), name


@mutation(
    "small vocabularies leave TRL's head", ESTIMATE,
    "return vocabulary > _TILE and", "return vocabulary >= _TILE and",
)  # fmt: skip
@pytest.mark.parametrize(
    ("vocabulary", "row", "completion", "fits"),
    [
        (49152, 29, 3, True),  # 20 x 49152 x 3 against 33 x 29 x 32768
        (49152, 1024, 1024, True),
        (151936, 100, 35, True),  # 1.064e8 against 1.081e8
        (151936, 100, 36, False),  # 1.094e8
        (49152, 8192, 5000, False),  # tiles are of 4096 tokens at most
        (32768, 29, 3, False),
    ],
)
def test_all_logits_fit_where_they_take_no_more_than_tiles(
    vocabulary: int, row: int, completion: int, fits: bool
) -> None:
    assert all_logits_fit(vocabulary, row, completion, "float32") is fits


@mutation(
    "the reference scores rows again in each pass", REFERENCE,
    "if row not in self._known:", "if row in self._together:",
)  # fmt: skip
def test_the_reference_scores_each_row_once(
    tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = grpo_rows(3, 4, sampler=load(policy))
    scored: list[int] = []
    original = stored.RolloutTrainer._under_reference

    def count(self: Any, inputs: dict[str, Any]) -> Any:
        scored.append(len(inputs["completion_ids"]))
        return original(self, inputs)

    monkeypatch.setattr(stored.RolloutTrainer, "_under_reference", count)
    settings = {"passes": 3, "groups_per_step": 2, "micro_batch_rows": 3, "kl_coef": 0.1}
    run_update(grpo_of(tmp_path, "out", rows, policy, **settings))
    assert sum(scored) == len(rows) == 12


@mutation(
    "rows of learned positions begin at the padding",
    "genenv_core/training/policies/completions.py",
    "    if counts_positions(model):\n", "    if False:\n",
    by="unit/training/test_grpo_scoring.py::"
    "test_learned_positions_are_counted_from_where_a_row_begins[gpt2]",
)  # fmt: skip
@mutation(
    "rows of learned positions are scored by TRL's head", STORED,
    "own = shared or counts_positions(model)", "own = shared",
    by="unit/training/test_grpo_scoring.py::"
    "test_learned_positions_are_counted_from_where_a_row_begins[gpt2]",
)  # fmt: skip
@pytest.mark.parametrize("name", some(POSITIONS, ("gpt2",)))
def test_learned_positions_are_counted_from_where_a_row_begins(tmp_path: Path, name: str) -> None:
    """Groups have prompts of several lengths, and a sampler's logprobs are those of a row alone."""
    folder = tiny_checkpoint(tmp_path / name)
    torch.manual_seed(0)
    POSITIONS[name]().save_pretrained(folder)
    rows = grpo_rows(3, 4, sampler=load(folder), prompt=(3, 20))
    lengths = {len(row["prompt_ids"]) for row in rows}
    assert len(lengths) > 1
    settings = {"passes": 1, "groups_per_step": 3, "micro_batch_rows": 12}
    done = run_update(grpo_of(tmp_path, "out", rows, folder, **settings))
    assert done.metrics["ratio_mean"] == pytest.approx(1, abs=1e-4)
    assert done.metrics["ratio_max"] == pytest.approx(1, abs=1e-4)
