"""How GRPO scores stored rows: padded ones on a CPU, and those of the reference.

Invariants: where all logits of padded rows take no more memory than TRL's tiles, a step on a CPU
computes those of the completions alone, with the same gradient but for rounding; the reference
scores each row once, whatever the number of passes; a row has the logprobs that it has alone,
whatever stands beside it and whatever the head of its model is, and no update computes what a model
does in training alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BartConfig,
    BartForCausalLM,
    BioGptConfig,
    BioGptForCausalLM,
    CohereConfig,
    CohereForCausalLM,
    FalconConfig,
    FalconForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    HunYuanDenseV1Config,
    HunYuanDenseV1ForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    ModernBertDecoderConfig,
    ModernBertDecoderForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PhimoeConfig,
    PhimoeForCausalLM,
    RobertaConfig,
    RobertaForCausalLM,
    XGLMConfig,
    XGLMForCausalLM,
)

from genenv_core.errors import TrainingError
from genenv_core.training.grpo import stored
from genenv_core.training.loop.steps import StepTrainer
from genenv_core.training.memory.estimate import all_logits_fit
from genenv_core.training.policies import heads
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

HEADS = "genenv_core/training/policies/heads.py"
COMPLETIONS = "genenv_core/training/policies/completions.py"
ESTIMATE = "genenv_core/training/memory/estimate.py"
REFERENCE = "genenv_core/training/grpo/reference.py"

SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
ROTARY: dict[str, Any] = SHAPE | {
    "intermediate_size": 48,
    "initializer_range": 0.3,
    "pad_token_id": 0,
}
MODELS: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**SHAPE, initializer_range=0.3)),
    "opt": lambda: OPTForCausalLM(OPTConfig(**SHAPE, word_embed_proj_dim=32, init_std=0.3)),
    "xglm": lambda: XGLMForCausalLM(XGLMConfig(**SHAPE, init_std=0.3)),
    "biogpt": lambda: BioGptForCausalLM(BioGptConfig(**SHAPE, initializer_range=0.3)),
    "roberta": lambda: RobertaForCausalLM(RobertaConfig(**ROTARY, is_decoder=True)),
    "bart": lambda: BartForCausalLM(
        BartConfig(vocab_size=VOCABULARY, d_model=32, decoder_layers=2, init_std=0.3)
    ),
    "modernbert": lambda: ModernBertDecoderForCausalLM(ModernBertDecoderConfig(**ROTARY)),
    "hunyuan": lambda: HunYuanDenseV1ForCausalLM(HunYuanDenseV1Config(**ROTARY, head_dim=8)),
    "gemma2": lambda: Gemma2ForCausalLM(
        Gemma2Config(**ROTARY, head_dim=8, sliding_window=6, final_logit_softcapping=2.0)
    ),
    "cohere": lambda: CohereForCausalLM(CohereConfig(**ROTARY, logit_scale=0.3)),
}
"""Architectures with learned positions; with a head of more than a matrix; and others."""

SHAKEN: dict[str, Any] = ROTARY | {"num_local_experts": 4, "num_key_value_heads": 4}
NOISY: dict[str, Callable[[], Any]] = {
    "mixtral": lambda: MixtralForCausalLM(MixtralConfig(**SHAKEN, router_jitter_noise=0.3)),
    "phimoe": lambda: PhimoeForCausalLM(PhimoeConfig(**SHAKEN)),
    "opt": lambda: OPTForCausalLM(
        OPTConfig(**SHAPE, word_embed_proj_dim=32, init_std=0.3, layerdrop=0.5, dropout=0.4)
    ),
    "falcon": lambda: FalconForCausalLM(FalconConfig(**SHAPE, hidden_dropout=0.4)),
}
"""Models that compute otherwise in training."""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("scoring") / "policy", seed=1)


@mutation(
    "padded rows on a CPU are scored by TRL's head", HEADS,
    "return all_logits_fit(", "return False and all_logits_fit(",
)  # fmt: skip
@mutation(
    "logits of a padded row are taken one position late", COMPLETIONS,
    "predicting = (position >= first - 1) & (position < end - 1)",
    "predicting = (position >= first) & (position < end)",
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
        monkeypatch.setattr(heads, "all_logits_fit", lambda *_, fits=fits: fits)
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
    "TRL's head scores every model", HEADS, "if share <= min(", "if True or share <= min(",
    by="unit/training/test_grpo_scoring.py::"
    "test_a_row_has_the_logprobs_that_it_has_alone[gpt2]",
)  # fmt: skip
@mutation(
    "the model's own head scores rows with padding in front", COMPLETIONS,
    "input_ids[row, : len(prompt) + len(completion)] =",
    "input_ids[row, width - len(prompt) - len(completion) :] =",
    by="unit/training/test_grpo_scoring.py::"
    "test_a_row_has_the_logprobs_that_it_has_alone[gpt2]",
)  # fmt: skip
@mutation(
    "rows of GRPO are scored at temperature 1", COMPLETIONS,
    "(completion_logits(model, batch) / temperature)", "completion_logits(model, batch)",
    by="unit/training/test_grpo_scoring.py::"
    "test_a_row_has_the_logprobs_that_it_has_alone[gpt2]",
)  # fmt: skip
@pytest.mark.parametrize("name", some(MODELS, ("gpt2", "modernbert", "hunyuan")))
def test_a_row_has_the_logprobs_that_it_has_alone(tmp_path: Path, name: str) -> None:
    """Groups have prompts of several lengths, and a sampler's logprobs are those of a row alone."""
    check_ratios(tmp_path, MODELS[name]())


@mutation(
    "a router is shaken in training", "genenv_core/training/policies/weights.py",
    "part.training = mode and (layer or part is policy)", "part.training = mode",
    by="unit/training/test_grpo_scoring.py::"
    "test_an_update_computes_what_is_sampled_from[mixtral]",
)  # fmt: skip
@mutation(
    "layers drop what their configuration says", "genenv_core/engines/transformers/loading.py",
    "            _end_dropout(module.config)\n", "",
    by="unit/training/test_grpo_scoring.py::"
    "test_an_update_computes_what_is_sampled_from[falcon]",
)  # fmt: skip
@pytest.mark.parametrize("name", some(NOISY, ("mixtral", "falcon")))
def test_an_update_computes_what_is_sampled_from(tmp_path: Path, name: str) -> None:
    """What a model does in training alone is no part of an update, with checkpointing or not."""
    torch.manual_seed(0)
    check_ratios(tmp_path, NOISY[name](), gradient_checkpointing=name == "falcon")


LONGROPE: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
}


@mutation(
    "rows are longer than their angles are steady", "genenv_core/training/loop/rows.py",
    "if most is not None and length > most:", "if False:",
)  # fmt: skip
def test_rows_that_would_turn_each_others_positions_are_refused(tmp_path: Path) -> None:
    """Phi-3 turns every token otherwise where the longest row of a batch is beyond a length."""
    folder = tiny_checkpoint(tmp_path / "policy")
    torch.manual_seed(0)
    config = Phi3Config(**ROTARY, rope_parameters=LONGROPE, original_max_position_embeddings=12)
    Phi3ForCausalLM(config).save_pretrained(folder)
    rows = grpo_rows(1, 4, sampler=load(folder), prompt=(6, 6), completion=(2, 4))
    fits = run_update(grpo_of(tmp_path, "fits", rows, folder, passes=1))
    assert fits.metrics["ratio_max"] == pytest.approx(1, abs=1e-4)
    rows[2] |= grpo_rows(1, 1, sampler=load(folder), prompt=(9, 9), completion=(4, 4))[0]
    rows[2] |= {key: rows[1][key] for key in ("group_id", "reward")} | {"reward": 0.5}
    message = r"'g000': 14 tokens, .* beyond 12: lower rollout\.max_length so that"
    with pytest.raises(TrainingError, match=message):
        run_update(grpo_of(tmp_path, "refused", rows, folder, passes=1))


def check_ratios(tmp_path: Path, model: Any, **options: Any) -> None:
    """Assert that an update on what a model sampled has the ratio 1 at each token."""
    folder = tiny_checkpoint(tmp_path / "policy")
    model.save_pretrained(folder)
    rows = grpo_rows(3, 4, sampler=load(folder), prompt=(3, 20), temperature=0.7)
    assert len({len(row["prompt_ids"]) for row in rows}) > 1
    settings = {"passes": 1, "groups_per_step": 3, "micro_batch_rows": 12, "temperature": 0.7}
    done = run_update(grpo_of(tmp_path, "out", rows, folder, **settings, **options))
    assert done.metrics["ratio_mean"] == pytest.approx(1, abs=1e-4)
    assert done.metrics["ratio_max"] == pytest.approx(1, abs=1e-4)
