"""Updates whose rows share prefixes, against the same updates with padded rows.

Invariants: the prefix tree of rows is the one drawn by hand; logprobs, losses and gradients equal
the padded ones but for rounding, on the tiny model and on random ones of the shapes of Qwen2 and
Llama, for GRPO (with either reference, masked turns, mismatches, adapters), RWR and a warm start;
a token that rows share is computed once; gradient checkpointing changes no bit, nor does an
interruption; a model that cannot compute it is refused before the first step; the estimated memory
is an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from pydantic import ValidationError
from torch.nn import Embedding
from torch.nn.modules.module import register_module_forward_pre_hook
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
)

from genenv_core.canonical import file_sha256
from genenv_core.config.load import resolve
from genenv_core.config.sections.training import LoraConfig, TrainingConfig
from genenv_core.errors import ModelError, Stopped, TrainingError
from genenv_core.exchange.external import given_to
from genenv_core.training.grpo import stored
from genenv_core.training.memory.estimate import DecoderShape, estimate
from genenv_core.training.policies import prefixes
from genenv_core.training.policies.completions import completion_logits, laid_out
from genenv_core.training.policies.prefixes import check_prefixes
from genenv_core.training.requests import TrainerCheckpoints
from genenv_core.training.updates.table import run_update
from tests.examples import some
from tests.mutations import mutation
from tests.unit.builders_engine import tiny_tokenizer
from tests.unit.plugged import domain_of
from tests.unit.training.builders_training import (
    Gradient,
    grpo_of,
    grpo_rows,
    load,
    mixed_rows,
    noted_gradients,
    random_rows,
    relative_error,
    rwr_of,
    sft_of,
    tiny_checkpoint,
    token_logprobs,
)
from tests.unit.training.test_training_memory import MODELS, SIZES, job

COMPLETIONS = "genenv_core/training/policies/completions.py"
PREFIXES = "genenv_core/training/policies/prefixes.py"
UNLOADED = "genenv_core/engines/transformers/unloaded.py"
EXTERNAL = "genenv_core/exchange/external.py"
UPDATE = "genenv_core/training/loop/update.py"
ESTIMATE = "genenv_core/training/memory/estimate.py"

SHARED = TrainingConfig(rows="shared")
PROMPTS = [[5, 6, 7], [5, 6, 7], [5, 9], [5, 6, 7], [5, 6]]
"""Two attempts of one prompt are equal, one prompt is the beginning of another."""
COMPLETIONS_OF = [[8, 3, 1], [8, 4, 1], [7, 1], [8, 3, 1], [7, 8, 2]]

Result = TypeVar("Result")


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("shared") / "policy", seed=1)


@pytest.fixture
def gradients(monkeypatch: pytest.MonkeyPatch) -> list[Gradient]:
    return noted_gradients(monkeypatch)


def computed(work: Callable[[], Result]) -> tuple[Result, int]:
    """Return what work returns, and how many tokens the models in it have computed."""
    tokens = 0

    def count(module: Any, inputs: tuple[Any, ...]) -> None:
        nonlocal tokens
        tokens += inputs[0].numel() if isinstance(module, Embedding) else 0

    handle = register_module_forward_pre_hook(count)
    try:
        return work(), tokens
    finally:
        handle.remove()


def looked(policy: Path) -> int:
    """Return how many tokens a model computes when an update looks whether it can do this."""
    model = load(policy)
    return computed(lambda: check_prefixes(model, policy))[1]


def test_a_prefix_tree_is_the_one_drawn_by_hand() -> None:
    layout = laid_out(PROMPTS, COMPLETIONS_OF, shared=True)
    inputs = layout["inputs"]
    # 5 - 6 - 7 - 8 - 3    the last token of a row predicts nothing, so 5 6 7 8 of the last row
    #   \           \ 4    is a part of the others, and 5 9 7 has two tokens of its own
    #     9 - 7
    assert inputs["input_ids"].tolist() == [[5, 6, 7, 8, 3, 4, 9, 7]]
    assert inputs["position_ids"].tolist() == [[0, 1, 2, 3, 4, 4, 1, 2]]
    assert inputs["ends"].tolist() == [[8, 6, 6, 6, 5, 6, 8, 8]]
    predicting = inputs["logits_to_keep"][layout["chosen"]]
    assert predicting.tolist() == [2, 3, 4, 2, 3, 5, 6, 7, 2, 3, 4, 1, 2, 3]
    assert layout["targets"].tolist() == [8, 3, 1, 8, 4, 1, 7, 1, 8, 3, 1, 7, 8, 2]
    assert layout["lengths"].tolist() == [3, 3, 2, 3, 3]


@mutation(
    "a token of shared rows sees the rows before its own", COMPLETIONS,
    "seen = (node <= node[:, None]) & (node[:, None] < ends)", "seen = node <= node[:, None]",
)  # fmt: skip
@mutation(
    "a token of shared rows has its place in the micro-batch as its position", COMPLETIONS,
    "positions += range(common, len(before))", "positions += range(len(ends), len(ids))",
)  # fmt: skip
@pytest.mark.parametrize("kind", ["tiny", *MODELS])
def test_logits_and_gradients_are_those_of_padded_rows(kind: str, policy: Path) -> None:
    torch.manual_seed(3)
    model = load(policy) if kind == "tiny" else MODELS[kind](initializer_range=0.3)
    rows = random_rows(4, seed=2, prompt=(9, 12)) * 2
    prompts = [*PROMPTS, *(row["prompt_ids"] for row in rows)]
    completions = [*COMPLETIONS_OF, *(row["completion_ids"] for row in rows)]
    completions[-1] = [*completions[-1], 4, 5]
    found: list[tuple[Any, Gradient]] = []
    for shared in (False, True):
        batch = laid_out(prompts, completions, shared=shared)
        model.zero_grad()
        logprobs = completion_logits(model, batch).log_softmax(-1)
        chosen = logprobs.gather(1, batch["targets"].unsqueeze(1))
        (chosen.squeeze(1) * torch.linspace(-1, 2, len(chosen))).sum().backward()
        named = model.named_parameters()
        found.append((logprobs.detach(), {name: p.grad.clone() for name, p in named}))
    assert torch.allclose(found[0][0], found[1][0], atol=2e-5)
    assert relative_error(found[1][1], found[0][1]) < 1e-5


GRPO: dict[str, dict[str, Any]] = {
    "plain": {},
    "kl": {"kl_coef": 0.1, "loss_type": "grpo", "groups_per_step": 2},
    "kl to the first": {"kl_coef": 0.1, "kl_reference": "bootstrap"},
    "near": {"max_mismatch": 0.8, "micro_batch_rows": 3},
    "lora": {"kl_coef": 0.1, "lora": LoraConfig(rank=2)},
}


@pytest.mark.parametrize("case", some(GRPO, ("plain",)))
def test_grpo_has_the_loss_and_the_gradient_of_padded_rows(
    tmp_path: Path, policy: Path, gradients: list[Gradient], case: str
) -> None:
    options = {"passes": 1, "temperature": 0.7, "learning_rate": 1e-6, "max_grad_norm": 1000}
    options |= GRPO[case]
    lora = options.pop("lora", LoraConfig())
    if case == "kl to the first":
        options["reference"] = tiny_checkpoint(tmp_path / "first", seed=2)
    # Scored at another temperature than they are trained at, so ratios are on both sides of 1.
    rows = grpo_rows(3, 4, sampler=load(policy), masked=True, prompt=(20, 25))
    done = [
        computed(
            lambda config=config, name=name: run_update(
                grpo_of(tmp_path, name, rows, policy, training=config, **options)
            )
        )
        for name, config in (
            ("padded", TrainingConfig(lora=lora)),
            ("shared", TrainingConfig(lora=lora, rows="shared")),
        )
    ]
    (padded, many), (shared, few) = done
    half = len(gradients) // 2
    assert half == padded.steps == shared.steps
    for one, other in zip(gradients[:half], gradients[half:], strict=True):
        assert relative_error(other, one) < 1e-4
    for name, value in padded.metrics.items():
        assert shared.metrics[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
    assert few - looked(policy) < 0.6 * many


@mutation(
    "updates add the loss that balances experts", "genenv_core/training/loop/steps.py",
    '        "router_aux_loss_coef": 0.0,', "#",
)  # fmt: skip
@mutation(
    "a model that gives its router's logits cannot share rows", COMPLETIONS,
    "**_alone(model), ", "",
)  # fmt: skip
@pytest.mark.parametrize("rows", ["padded", "shared"])
def test_updates_of_experts_have_their_own_loss_alone(tmp_path: Path, rows: str) -> None:
    """TRL reads a coefficient of the model's configuration and adds a loss of its own by it."""
    folder = tiny_checkpoint(tmp_path / "experts")
    sizes = {"num_local_experts": 4, "hidden_size": 32, "num_hidden_layers": 1, "vocab_size": 40}
    model = _small(MixtralForCausalLM, MixtralConfig, **sizes)
    model.config.output_router_logits = True
    model.save_pretrained(folder)
    training = TrainingConfig.model_validate({"rows": rows})
    taught = [{"prompt_ids": [5, 6, 7], "completion_ids": [8, last]} for last in (3, 4)]
    options: dict[str, Any] = {"batch_rows": 2, "micro_batch_rows": 2, "training": training}
    done = run_update(sft_of(tmp_path, "taught", taught, folder, **options))
    alone = [token_logprobs(load(folder), row) for row in taught]
    assert done.metrics["loss"] == pytest.approx(-float(torch.cat(alone).mean()), abs=1e-5)
    attempts = grpo_rows(2, 4, sampler=load(folder))
    options = {"passes": 1, "groups_per_step": 2, "training": training}
    done = run_update(grpo_of(tmp_path, "out", attempts, folder, **options))
    assert done.metrics["ratio_mean"] == pytest.approx(1, abs=1e-4)


def test_a_groups_prompt_is_computed_once(tmp_path: Path, policy: Path) -> None:
    rows = grpo_rows(1, 8, sampler=load(policy), prompt=(31, 31), completion=(2, 2))
    for index, row in enumerate(rows):  # answers of three tokens, the first ones all different
        row["completion_ids"] = [10 + index, 9, 1]
    options: dict[str, Any] = {"group_size": 8, "passes": 1, "training": SHARED}
    _, tokens = computed(lambda: run_update(grpo_of(tmp_path, "out", rows, policy, **options)))
    assert tokens == 31 + 8 * 2 + looked(policy)


@pytest.mark.parametrize("kind", ["rwr", "sft"])
def test_both_likelihoods_have_the_gradient_of_padded_rows(
    tmp_path: Path, policy: Path, gradients: list[Gradient], kind: str
) -> None:
    rows = mixed_rows(9, prompt=(20, 25))
    for row in rows[3:]:
        row["prompt_ids"] = rows[0]["prompt_ids"]
    first = tiny_checkpoint(tmp_path / "first", seed=2)

    def request(name: str, training: TrainingConfig) -> Any:
        if kind == "sft":
            own = [{key: row[key] for key in ("prompt_ids", "completion_ids")} for row in rows]
            options = {"batch_rows": 9, "micro_batch_rows": 4}
            return sft_of(tmp_path, name, own, policy, training=training, **options)
        options = {"micro_batch_rows": 4, "steps": 1, "kl_coef": 0.3, "kl_cap": 1e6}
        return rwr_of(tmp_path, name, rows, policy, first, training=training, **options)

    (padded, many), (shared, few) = (
        computed(lambda name=name, config=config: run_update(request(name, config)))
        for name, config in (("padded", TrainingConfig()), ("shared", SHARED))
    )
    assert relative_error(gradients[1], gradients[0]) < 1e-5
    assert shared.metrics == pytest.approx(padded.metrics, rel=1e-4)
    assert few - looked(policy) < 0.7 * many


@mutation(
    "rows with a common beginning are in several micro-batches", COMPLETIONS,
    "key=lambda row: (prompts[row], completions[row], row))", "key=lambda row: row)",
)  # fmt: skip
def test_rows_with_a_common_beginning_come_together(tmp_path: Path, policy: Path) -> None:
    rows = random_rows(8, seed=8, prompt=(20, 25))
    for index, row in enumerate(rows):
        row["prompt_ids"] = rows[index % 2]["prompt_ids"]
    options: dict[str, Any] = {"batch_rows": 8, "micro_batch_rows": 4, "training": SHARED}
    _, tokens = computed(lambda: run_update(sft_of(tmp_path, "out", rows, policy, **options)))
    prompts = sum(len(row["prompt_ids"]) for row in rows[:2])
    answers = sum(len(row["completion_ids"]) - 1 for row in rows)
    assert tokens == prompts + answers + looked(policy)


@pytest.mark.slow
def test_bits_stay_with_gradient_checkpointing_and_after_an_interruption(
    tmp_path: Path, policy: Path
) -> None:
    rows = grpo_rows(4, 4, sampler=load(policy), masked=True)
    kept = TrainerCheckpoints(folder=tmp_path / "kept", seconds=1e6)
    options: dict[str, Any] = {"passes": 1, "groups_per_step": 2, "training": SHARED}
    options |= {"kl_coef": 0.1, "max_mismatch": 5, "learning_rate": 1e-2}
    made: dict[str, Path] = {}
    for name, checkpointing in (("plain", False), ("checkpointed", True)):
        request = grpo_of(
            tmp_path, name, rows, policy, gradient_checkpointing=checkpointing, **options
        )
        made[name] = run_update(request).checkpoint
    stopped = grpo_of(tmp_path, "stopped", rows, policy, checkpoints=kept, **options)
    with pytest.raises(Stopped, match="after step 1 of 2"):
        run_update(stopped, lambda: True)
    done = run_update(stopped)
    assert done.resumed_at == 1
    made["stopped"] = done.checkpoint
    assert len({file_sha256(path / "model.safetensors") for path in made.values()}) == 1


@mutation(
    "an update of shared rows tries TRL's head", "genenv_core/training/grpo/stored.py",
    "and not self.training.shares_rows", "and True",
)  # fmt: skip
def test_bfloat16_products_are_near_those_of_float32(
    tmp_path: Path, policy: Path, gradients: list[Gradient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No update of shared rows tries TRL's tiled head, which takes padded rows."""
    rows = grpo_rows(2, 4, sampler=load(policy))
    tried: list[object] = []
    monkeypatch.setattr(stored, "tiles_agree", lambda *given: tried.append(given))
    for name, precision in (("exact", "float32"), ("half", "bfloat16")):
        training = TrainingConfig.model_validate({"rows": "shared", "precision": precision})
        run_update(grpo_of(tmp_path, name, rows, policy, passes=1, training=training))
    assert 1e-6 < relative_error(gradients[1], gradients[0]) < 0.1
    assert tried == []


def _small(kind: Any, config: Any, **more: Any) -> Any:
    torch.manual_seed(0)
    return kind(config(**SIZES | more))


@mutation(
    "an update does not look whether its model can share prefixes", UPDATE,
    "if request.training.shares_rows:", "if False:",
)  # fmt: skip
def test_a_model_with_a_window_is_refused_before_the_first_step(
    tmp_path: Path, policy: Path
) -> None:
    windowed = tiny_checkpoint(tmp_path / "windowed", seed=1)
    path = windowed / "config.json"
    text = path.read_text(encoding="utf-8")
    assert text.count('"full_attention",') == 1
    path.write_text(text.replace('"full_attention",', '"sliding_attention",'), encoding="utf-8")
    rows = grpo_rows(2, 4, sampler=load(policy))
    message = (
        r"^training\.rows is shared: the model of .*windowed cannot compute shared prefixes "
        r"\(layer_types sliding_attention\): set training\.rows=padded$"
    )
    with pytest.raises(TrainingError, match=message):
        run_update(grpo_of(tmp_path, "out", rows, windowed, training=SHARED))


@mutation(
    "a plan takes shared rows of a model with a window", EXTERNAL,
    "if model is not None and config.training.shares_rows:", "if model is False:",
)  # fmt: skip
@mutation(
    "a model with a window is refused with padded rows too", EXTERNAL,
    "if model is not None and config.training.shares_rows:", "if model is not None:",
)  # fmt: skip
def test_a_plan_refuses_shared_rows_of_a_model_with_a_window(tmp_path: Path) -> None:
    tokenizer, folder = tiny_tokenizer(), tmp_path / "windowed"
    sizes = {"sliding_window": 4096, "vocab_size": len(tokenizer) + 1}
    _small(MistralForCausalLM, MistralConfig, **sizes).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    given = [f"models.{policy}={folder}" for policy in ("agent", "env")]
    config = resolve("tiny", overrides=given)
    assert given_to(config, domain_of(config)).agent_model
    shared = resolve("tiny", overrides=[*given, "training.rows=shared"])
    with pytest.raises(ModelError, match=r"^training\.rows is shared: .*\(sliding_window 4096\)"):
        given_to(shared, domain_of(shared))


@mutation(
    "a model that has a window and does not list its layers shares prefixes", UNLOADED,
    'return f"sliding_window {window}" if window else ""', 'return ""',
)  # fmt: skip
@mutation(
    "a model with an attention of its own shares prefixes", PREFIXES,
    "if not model.is_backend_compatible():", "if False:",
)  # fmt: skip
@mutation(
    "the numbers of a model do not decide whether it shares prefixes", PREFIXES,
    "_attention(model) or (\"\" if known in _sound else _difference(model))", "_attention(model)",
)  # fmt: skip
def test_what_cannot_share_prefixes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "_sound", set())
    mistral = _small(MistralForCausalLM, MistralConfig, sliding_window=4096)
    with pytest.raises(TrainingError, match=r"\(sliding_window 4096\)"):
        check_prefixes(mistral, "it")
    bloom = BloomForCausalLM(BloomConfig(vocab_size=96, hidden_size=32, n_layer=1, n_head=4))
    with pytest.raises(TrainingError, match=r"BloomForCausalLM has an attention of its own"):
        check_prefixes(bloom, "it")
    qwen = MODELS["qwen2"]()
    check_prefixes(qwen, "it")
    check_prefixes(qwen.to(torch.bfloat16), "it")  # rounding is no difference
    deaf = MODELS["llama"]()
    forward = deaf.forward

    def without_positions(**inputs: Any) -> Any:
        return forward(**{name: v for name, v in inputs.items() if name != "position_ids"})

    monkeypatch.setattr(deaf, "forward", without_positions)
    with pytest.raises(TrainingError, match=r"its logits differ by 0\.\d+ of their spread"):
        check_prefixes(deaf, "it")


@mutation(
    "each update compares a few rows of its model again", PREFIXES, "_sound.add(known)", "pass",
)  # fmt: skip
@mutation(
    "a model of another architecture is taken for one that was compared", PREFIXES,
    "return *code, model.config.to_json_string(),", "return *code,",
)  # fmt: skip
def test_a_process_compares_an_architecture_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compared: list[Any] = []

    def compare(model: Any) -> str:
        compared.append(model)
        return ""

    monkeypatch.setattr(prefixes, "_sound", set())
    monkeypatch.setattr(prefixes, "_difference", compare)
    first, second = (load(tiny_checkpoint(tmp_path / str(seed), seed=seed)) for seed in (1, 2))
    wider = load(tiny_checkpoint(tmp_path / "wider", hidden=64))
    for model in (first, second, wider):
        check_prefixes(model, "it")
    assert compared == [first, wider]


def test_shared_prefixes_with_deepspeed_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"rows shared was not tried with .* zero3"):
        TrainingConfig(device="cuda", processes=2, strategy="zero3", rows="shared")
    TrainingConfig(device="cuda", processes=2, strategy="fsdp2", rows="shared")


@mutation(
    "the mask of shared rows is as wide as one row", ESTIMATE,
    "mask = _SHARED_MASK * job.rows * tokens", "mask = _SHARED_MASK * tokens",
)  # fmt: skip
@pytest.mark.parametrize("alike", [False, True])
def test_the_estimated_memory_is_an_upper_bound(alike: bool) -> None:
    """Within a tenth where rows share nothing."""
    rows, tokens, end = 4, 160, 8
    prompts = [[2 if alike else 2 + row] * (tokens - end) for row in range(rows)]
    completions = [[1 + row] * end for row in range(rows)]
    kept: list[int] = []
    expected: list[float] = []
    for layers in (1, 2):
        model = MODELS["qwen2"](num_hidden_layers=layers, vocab_size=16).train()
        weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
        held: dict[int, Any] = {}

        def keep(tensor: torch.Tensor, held: dict[int, Any] = held) -> torch.Tensor:
            held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            completion_logits(model, laid_out(prompts, completions, shared=True)).log_softmax(-1)
        kept.append(sum(one.nbytes() for at, one in held.items() if at not in weights))
        needed = job(
            DecoderShape.of(model.config.to_dict()), training=SHARED, gradient_checkpointing=False,
            row_tokens=tokens, completion_tokens=end, rows=rows,
        )  # fmt: skip
        expected.append(rows * estimate(needed).row)
    for measured, bound in zip(kept, expected, strict=True):
        assert measured < bound < (math.inf if alike else 1.1 * measured)
    assert kept[0] < (0.5 if alike else 1) * expected[0]
