"""The estimated memory of an update, against real models.

Invariants: parameters are counted exactly; the tensors that a layer keeps for the backward pass are
estimated within a tenth, with and without gradient checkpointing; sharding divides the need, LoRA
and bfloat16 lower it and each copy raises it, by the right amounts; a micro-batch is lowered until
it fits and never raised; an update that cannot fit is refused before work, with the settings that
would help; gradient checkpointing changes no bit.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from genenv_core.canonical import file_sha256
from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.training import LoraConfig, TrainingConfig
from genenv_core.config.sections.updates import GrpoConfig, KlReference, RwrConfig
from genenv_core.config.stages import WARM
from genenv_core.errors import ConfigError, ModelError, TrainingError
from genenv_core.exchange.external import Given
from genenv_core.play.chat import ChatFormat
from genenv_core.spending import needs
from genenv_core.spending.prompts import longest_prompt
from genenv_core.storage.records.manifest import FileRef
from genenv_core.training.memory import estimate as estimates
from genenv_core.training.memory.devices import Gpu, read_gpu
from genenv_core.training.memory.estimate import (
    GB,
    DecoderShape,
    Job,
    MemoryEstimate,
    estimate,
    fitted,
    job_of,
    reference_of,
    remedies,
)
from genenv_core.training.requests import lowered
from genenv_core.training.updates.table import UPDATES, run_update
from genenv_core.types import Policy
from tests.mutations import mutation
from tests.unit.plugged import domain_of
from tests.unit.training.builders_training import mixed_rows, rwr_of, tiny_checkpoint
from tests.unit.training.test_training_lora import grpo

ESTIMATE = "genenv_core/training/memory/estimate.py"
NEEDS = "genenv_core/spending/needs.py"
PROMPTS = "genenv_core/spending/prompts.py"

SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
MODELS = {
    "qwen2": lambda **extra: Qwen2ForCausalLM(Qwen2Config(**SIZES | extra)),
    "llama": lambda **extra: LlamaForCausalLM(LlamaConfig(**SIZES | extra)),
}
SEVEN = DecoderShape.of(
    {  # Qwen2.5-7B
        "model_type": "qwen2",
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "intermediate_size": 18944,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "torch_dtype": "bfloat16",
    }
)


def job(shape: DecoderShape = SEVEN, **changes: Any) -> Job:
    config = changes.pop("training", TrainingConfig(device="cuda", precision="bfloat16"))
    values: dict[str, Any] = {
        "loss": "grpo",
        "row_tokens": 4096,
        "completion_tokens": 2048,
        "gradient_checkpointing": True,
        "reference": None,
    }
    return Job(shape=shape, training=config, **values | changes)


def need(**changes: Any) -> MemoryEstimate:
    return estimate(job(**changes))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_parameters_are_counted_exactly(kind: str, tied: bool) -> None:
    model = MODELS[kind](tie_word_embeddings=tied)
    shape = DecoderShape.of(model.config.to_dict())
    assert shape.parameters == sum(p.numel() for p in model.parameters())
    assert SEVEN.parameters == 7_615_616_512  # as its model card has it: 7.61 billion


def test_heads_of_their_own_width_are_counted_and_experts_are_not() -> None:
    model = Qwen3ForCausalLM(Qwen3Config(**SIZES | {"head_dim": 32, "tie_word_embeddings": True}))
    shape = DecoderShape.of(model.config.to_dict())
    assert shape.queries == 128 != SIZES["hidden_size"]
    assert shape.parameters == sum(p.numel() for p in model.parameters())
    with pytest.raises(ValueError, match="num_experts: mixtures of experts are not counted"):
        DecoderShape.of(model.config.to_dict() | {"num_experts": 128})


@pytest.mark.parametrize("rank", [1, 8])
def test_adapters_are_counted_exactly(rank: int) -> None:
    from peft import LoraConfig as PeftLora
    from peft import get_peft_model

    model = MODELS["qwen2"]()
    shape = DecoderShape.of(model.config.to_dict())
    adapted = get_peft_model(model, PeftLora(r=rank, target_modules="all-linear"))
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    assert shape.adapters(rank) == trained


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(("hidden", "tokens"), [(64, 48), (128, 160)])
def test_what_a_layer_keeps_is_estimated_within_a_tenth(
    kind: str, checkpointing: bool, hidden: int, tokens: int
) -> None:
    measured: list[int] = []
    expected: list[float] = []
    for layers in (2, 6):
        model = MODELS[kind](num_hidden_layers=layers, hidden_size=hidden).train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        measured.append(kept_bytes(model, rows=2, tokens=tokens))
        shape = DecoderShape.of(model.config.to_dict())
        options = {"gradient_checkpointing": checkpointing, "row_tokens": tokens}
        expected.append(2 * estimate(job(shape, training=TrainingConfig(), **options)).row)
    layers_measured, layers_expected = measured[1] - measured[0], expected[1] - expected[0]
    assert layers_expected == pytest.approx(layers_measured, rel=0.1)


def kept_bytes(model: Any, *, rows: int, tokens: int) -> int:
    """Return the bytes that a forward pass keeps for its backward pass, without the weights."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, Any] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()  # held, so unique
        return tensor

    ids, mask = torch.ones(rows, tokens, dtype=torch.long), torch.ones(rows, tokens).long()
    mask[0, :3] = 0
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(input_ids=ids, attention_mask=mask, use_cache=False, logits_to_keep=1)
    return sum(storage.nbytes() for at, storage in kept.items() if at not in weights)


def test_the_7b_of_the_paper_in_numbers() -> None:
    """By hand: 7.62e9 weights x (4 + 4 + 8) bytes, plus 2 for autocast in bfloat16."""
    alone = need()
    static = sum(alone.fixed[name] for name in ("weights", "gradients", "optimizer"))
    assert static == pytest.approx(16 * 7.6156e9, rel=1e-4)
    assert alone.total(1) > 140 * GB  # more than an H200 has
    sharded = need(training=TrainingConfig(
        device="cuda", precision="bfloat16", strategy="fsdp2", processes=4
    ))  # fmt: skip
    assert sharded.fixed["weights"] == alone.fixed["weights"] / 4
    assert 35 * GB < sharded.total(1) < 60 * GB
    lora = need(training=TrainingConfig(
        device="cuda", precision="bfloat16", lora=LoraConfig(rank=32)
    ))  # fmt: skip
    assert lora.fixed["weights"] == 2 * SEVEN.parameters + 4 * SEVEN.adapters(32)
    assert lora.fixed["copies"] == 2 * SEVEN.adapters(32)  # a bfloat16 base needs no cast
    assert lora.total(1) < 24 * GB


@pytest.mark.parametrize(
    ("changes", "lower"),
    [
        ({"gradient_checkpointing": False}, False),
        ({"reference": "start"}, False),
        ({"reference": "bootstrap"}, False),
        ({"loss": "rwr"}, False),
        ({"row_tokens": 8192}, False),
        ({"training": TrainingConfig(device="cuda", precision="bfloat16", processes=2)}, False),
        (
            {
                "training": TrainingConfig(
                    device="cuda", precision="bfloat16", processes=2, strategy="zero3"
                )
            },
            True,
        ),
    ],
)
def test_each_setting_moves_the_need_the_right_way(changes: dict[str, Any], lower: bool) -> None:
    assert (need(**changes).total(2) < need().total(2)) is lower


def test_a_reference_is_counted_where_one_is_loaded_in_the_type_that_it_is_loaded_in(
    tmp_path: Path,
) -> None:
    start, first = (GrpoConfig(kl_coef=0.1, kl_reference=one) for one in ("start", "bootstrap"))
    loras = (LoraConfig(), LoraConfig(rank=4), LoraConfig(rank=4, merge=True))

    def found(settings: GrpoConfig | RwrConfig, *, moved: bool = True) -> list[KlReference | None]:
        kl = UPDATES["grpo" if isinstance(settings, GrpoConfig) else "rwr"].kl(settings)
        return [reference_of(kl, lora, moved=moved) for lora in loras]

    assert found(GrpoConfig()) == [None, None, None]
    assert found(start) == ["start", None, None]
    assert found(first) == found(RwrConfig(kl_coef=0)) == ["bootstrap", None, "bootstrap"]
    assert found(first, moved=False) == ["bootstrap", None, None]
    kinds: tuple[KlReference, ...] = ("start", "bootstrap")
    copies = [need(reference=kind).fixed["copies"] - need().fixed["copies"] for kind in kinds]
    assert copies == [4 * SEVEN.parameters, 2 * SEVEN.parameters]
    policy = tiny_checkpoint(tmp_path / "policy", seed=1)
    settings = {"kl_coef": 0.1, "kl_reference": "bootstrap", "reference": tmp_path / "first"}
    request = grpo(tmp_path, policy, "pulled", TrainingConfig(), **settings)
    assert job_of(request).reference == "bootstrap"
    run = resolve("tiny", overrides=["grpo.kl_coef=0.1", "grpo.kl_reference=bootstrap"])
    assert needed(run, Given(None, None, None))[0].job.reference == "bootstrap"


def test_a_micro_batch_is_lowered_to_what_fits_and_never_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = tiny_checkpoint(tmp_path / "policy", seed=1)
    request = grpo(tmp_path, policy, "fits", TrainingConfig(), micro_batch_rows=8)
    needed = estimate(job_of(request))
    with caplog.at_level(logging.INFO, "genenv.training"):
        assert fitted(request, None).settings == request.settings
    assert "micro_batch_rows=8 estimated_memory=" in caplog.text
    for rows in (1, 3, 8, 20):
        memory = needed.total(rows) / 0.92 + 1
        assert fitted(request, memory).settings.micro_batch_rows == min(rows, 8)
        assert needed.largest(memory) == rows
    with pytest.raises(
        TrainingError, match=r"needs about .*GB.*on each device.*gradient_checkpointing=full"
    ):
        fitted(request, needed.total(1) / 2)


@pytest.mark.slow
def test_the_limit_holds_in_an_update_and_bits_depend_on_nothing_else(
    tmp_path: Path,
) -> None:
    policy = tiny_checkpoint(tmp_path / "policy", seed=1)
    request = grpo(tmp_path, policy, "limited", TrainingConfig(), micro_batch_rows=8)
    limit = estimate(job_of(request)).total(3) / 0.92 / GB * 1.0001
    limited = request.model_copy(update={"training": TrainingConfig(memory_gb=limit)})
    result = run_update(limited)
    assert lowered(result, 8) == {"micro_batch_rows": 3} and lowered(result, 3) == {}
    asked = grpo(tmp_path, policy, "asked", TrainingConfig(), micro_batch_rows=3)
    run_update(asked)
    run_update(
        asked.model_copy(update={"output": tmp_path / "again", "gradient_checkpointing": True})
    )
    found = {file_sha256(tmp_path / name / "model.safetensors") for name in ("limited", "asked")}
    assert found == {file_sha256(tmp_path / "again" / "model.safetensors")}
    tight = request.model_copy(update={"training": TrainingConfig(memory_gb=limit / 1e3)})
    with pytest.raises(TrainingError, match="GRPO update needs about"):
        run_update(tight)


def test_remedies_are_those_that_help_with_what_they_would_need() -> None:
    """At 7B, bfloat16 saves less activation memory than autocast's copies of the weights take."""
    advice = remedies(job(training=TrainingConfig(device="cuda"), gradient_checkpointing=False))
    assert "gradient_checkpointing=full (" in advice and "strategy=fsdp2 (" in advice
    lora = job(training=TrainingConfig(device="cuda", lora=LoraConfig(rank=32)))
    assert f"lora.rank=32 ({estimate(lora).total(1) / GB:.3g} GB)" in remedies(
        job(training=TrainingConfig(device="cuda"))
    )
    assert "precision" not in remedies(job(training=TrainingConfig(device="cuda")))


def test_an_unknown_architecture_has_no_estimate(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"n_embd": 3}')
    with pytest.raises(ModelError, match=r"its config\.json has no field num_attention"):
        DecoderShape.read(tmp_path)


def models_of(folder: Path, sizes: dict[str, Any]) -> Given:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(sizes | {"model_type": "qwen2"}))
    given = FileRef(path=str(folder), sha256="0" * 64)
    return Given(None, given, given)


@pytest.fixture
def small(tmp_path: Path) -> Given:
    """Return small models of both policies, in the folder `small`, without a tokenizer."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 300}
    return models_of(tmp_path / "small", sizes)


@mutation(
    "the game's updates are counted with the weights as given after a warm start in float32", NEEDS,
    "return replace(shape, stored_bytes=4)", "return shape",
)  # fmt: skip
def test_after_a_warm_start_frozen_weights_are_float32(
    small: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ChatFormat, "load", lambda *_: Words())
    path = tmp_path / "small" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"dtype": "bfloat16"}))
    settings = [f"models.{policy}={tmp_path}" for policy in Policy]
    settings += ["training={precision: bfloat16, lora: {rank: 4}}"]

    def updates(*more: str) -> list[float]:
        found = needed(resolve("tiny", overrides=[*settings, *more]), small)
        return [need.estimate.fixed["weights"] for need in found if need.stage != WARM]

    before, after = updates(), updates("warm_start.steps=3")
    weights = DecoderShape.read(tmp_path / "small").parameters
    assert [late - early for early, late in zip(before, after, strict=True)] == [2 * weights] * 2


class Words:
    """A chat format whose tokens are words; an answer has one more, its end."""

    def first_prompt(self, messages: list[dict[str, str]], tools: Any = ()) -> tuple[int, ...]:
        return (0,) * len(" ".join(message["content"] for message in messages).split())

    def completion(self, answer: str) -> tuple[int, ...]:
        return (0,) * (len(answer.split()) + 1)


def needed(config: RunConfig, given: Given) -> list[needs.Need]:
    """Return what the updates of a run of its domain need."""
    return needs.needs(config, given, domain_of(config))


def checked(config: RunConfig, given: Given) -> list[needs.Need]:
    """Return what the updates need, once that is checked."""
    found = needed(config, given)
    needs.check_needs(config, found)
    return found


@mutation(
    "a plan does not say which setting its rows are the longest of",
    NEEDS, "{kind.bound} allows", "it allows",
)  # fmt: skip
def test_a_run_says_what_it_needs_and_refuses_what_cannot_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the driver's numbers, eight GPUs of 80 GB hold the paper's setting; two do not."""
    sizes = {"hidden_size": 3584, "num_hidden_layers": 28, "intermediate_size": 18944}
    sizes |= {"num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064}
    models = models_of(tmp_path / "qwen", sizes)
    card = read_gpu("NVIDIA H100 80GB HBM3, 81559")
    assert card == Gpu("NVIDIA H100 80GB HBM3", 81559 * 2**20)
    paper = resolve("paper")
    monkeypatch.setattr(needs, "gpus", lambda: [card] * 8)
    grpo_need, rwr_need = checked(paper, models)
    assert grpo_need.stage == "grpo_update" and rwr_need.stage == "rwr_update"
    assert 20 * GB < grpo_need.estimate.total(1) < 60 * GB
    assert grpo_need.line().endswith("9000 tokens, the longest that rollout.max_length allows")
    assert rwr_need.line().endswith(" tokens, the longest that generation.max_tokens allows")
    assert all(need.estimate.largest(card.memory) >= need.rows for need in (grpo_need, rwr_need))
    monkeypatch.setattr(needs, "gpus", lambda: [card])
    with pytest.raises(ConfigError, match=r"needs 8 GPU\(s\).*has NVIDIA H100 80GB HBM3 \(86 GB\)"):
        checked(paper, models)
    elsewhere = paper.placement.model_copy(update={"grpo_update": "gpu", "rwr_update": "gpu"})
    assert checked(paper.model_copy(update={"placement": elsewhere}), models)
    alone = paper.training.model_copy(update={"processes": 1, "strategy": "ddp"})
    with pytest.raises(ConfigError, match=r"and there are 85\.5 GB") as caught:
        checked(paper.model_copy(update={"training": alone}), models)
    assert "training.lora.rank=32" in str(caught.value)


def test_the_small_preset_of_the_paper_fits_one_gpu_of_24_gb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole micro-batches fit with adapters; without them not even one row does."""
    sizes = {"hidden_size": 1536, "num_hidden_layers": 28, "intermediate_size": 8960}
    sizes |= {"num_attention_heads": 12, "num_key_value_heads": 2, "vocab_size": 151936}
    sizes |= {"tie_word_embeddings": True, "torch_dtype": "bfloat16"}
    models = models_of(tmp_path / "qwen", sizes)
    card = read_gpu("NVIDIA GeForce RTX 4090, 24564")
    monkeypatch.setattr(needs, "gpus", lambda: [card])
    small = resolve("paper-small")
    for need in checked(small, models):
        assert need.estimate.largest(card.memory) >= need.rows, need.line()
    whole = small.training.model_copy(update={"lora": LoraConfig()})
    with pytest.raises(ConfigError, match=r"training\.lora\.rank=32"):
        checked(small.model_copy(update={"training": whole}), models)


def test_tiny_models_need_next_to_nothing_and_their_limit_is_held() -> None:
    config = resolve("tiny")
    found = checked(config, Given(None, None, None))
    assert [need.stage for need in found] == ["grpo_update", "rwr_update"]
    assert all(need.estimate.total(1) < 0.1 * GB for need in found)
    tight = config.model_copy(update={"training": TrainingConfig(memory_gb=1e-4)})
    with pytest.raises(ConfigError, match="grpo_update: the GRPO update needs about"):
        checked(tight, Given(None, None, None))


@mutation(
    "the memory of RWR takes any prompt of pi_env for the usual one",
    NEEDS, "return longest_prompt(config, given, domain) or PROMPT",
    "return PROMPT",
)  # fmt: skip
def test_the_prompt_of_pi_env_is_as_long_as_its_domain_makes_it(
    small: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is counted by the tokenizer of the given model on the base data of the run."""
    loaded: list[tuple[Path, dict[str, Any]]] = []

    def load(folder: Path, variables: dict[str, Any]) -> Words:
        loaded.append((folder, variables))
        return Words()

    def length(preset: str, *overrides: str) -> int:
        config = resolve(preset, overrides=list(overrides))
        return needed(config, small)[-1].job.row_tokens - config.generation.max_tokens

    assert length("tiny") == needs.PROMPT  # without a tokenizer
    monkeypatch.setattr(ChatFormat, "load", load)
    variables = "models.env_chat_template_kwargs={enable_thinking: false}"
    short = length("tiny", f"models.env={tmp_path}", variables)
    assert 0 < short < 60
    assert loaded == [(tmp_path / "small", {"enable_thinking": False})]
    explained = length("tiny", "domain.options.explain=true")
    assert explained > 4 * short
    assert length("tiny", "generation.shots=3") > 3 * short
    data = tmp_path / "base.jsonl"
    data.write_text('{"program": "+ 3 bolts 4"}\n')
    given = Given(FileRef(path=str(data), sha256="0" * 64), None, small.env_model)
    config = resolve("tiny", overrides=[f"data.base_file={data}"])
    domain = domain_of(config)
    one = longest_prompt(config, given, domain)
    assert one is not None and 0 < one <= short  # of the single base task
    assert longest_prompt(config, Given(None, None, None), domain) is None


@mutation(
    "a plan knows no memory of a warm start", NEEDS,
    "        for policy in config.warm_started\n", "        for policy in ()\n",
)  # fmt: skip
@mutation(
    "the answers of a warm start's examples take no memory", PROMPTS,
    "max((prompt + answer).to_list()), max(answer.to_list())", "max(prompt.to_list()), 1",
)  # fmt: skip
@mutation(
    "a warm start is counted as one of the updates at once", NEEDS,
    "for need in here if need.stage != WARM", "for need in here",
)  # fmt: skip
def test_a_warm_start_needs_what_its_examples_need(
    small: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ChatFormat, "load", lambda *_: Words())
    examples = tmp_path / "examples.jsonl"
    example = {"messages": [{"role": "user", "content": "one two three"}], "answer": "four five"}
    rows = [example | {"policy": policy} for policy in Policy for _ in range(8)]
    rows[3] = rows[3] | {"answer": "four five six seven"}
    examples.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    given = [f"models.{policy}={tmp_path}" for policy in Policy]
    steps = ["warm_start.steps=3", "warm_start.micro_batch_rows=5"]
    config = resolve("tiny", overrides=[*given, *steps, f"warm_start.examples={examples}"])
    found = needed(config, small)
    assert [need.name for need in found] == [
        "warm_start of pi_agent", "warm_start of pi_env", "grpo_update", "rwr_update",
    ]  # fmt: skip
    lengths = [(need.job.row_tokens, need.job.completion_tokens, need.rows) for need in found[:2]]
    assert lengths == [(8, 5, 5), (6, 3, 5)]  # by hand
    assert (
        found[0]
        .line()
        .endswith(" with 5, for rows of 8 tokens, the longest of warm_start.examples")
    )
    tight = config.model_copy(update={"training": TrainingConfig(memory_gb=1e-4)})
    with pytest.raises(ConfigError, match=r"^warm_start of pi_agent: the warm start needs about "):
        needs.check_needs(tight, found)
    # It is over when the updates begin.
    game = needed(resolve("tiny", overrides=given), small)
    assert needs.lack_of_memory(config, found, 0) == needs.lack_of_memory(config, game, 0)
    alone = found[0].estimate.total(5) + 2 * 0.7 * GB
    assert needs.lack_of_memory(config, found[:2], alone + 1) == ""
    line = needs.lack_of_memory(config, found[:2], alone - 1)
    assert line.startswith(f"up to {alone / GB:.3g} GB are needed in the warm_start of pi_agent, ")
    own = resolve("tiny", overrides=[*given, *steps])
    assert needed(own, small)[0].longest == "of 64 examples of the domain"


SMOL = DecoderShape(
    hidden=576, layers=30, intermediate=1536, heads=9, kv_heads=3, vocabulary=49152, tied=True,
    attention_bias=False, stored_bytes=4, head=64,
)  # fmt: skip


@mutation(
    "the head of GRPO takes nothing on a CPU", ESTIMATE, "width * min(job.row", "0 * min(job.row"
)
@pytest.mark.parametrize(("stored", "rows", "measured"), [(4, 4, 4.16), (4, 1, 1.95), (2, 4, 3.67)])
def test_adapters_on_a_cpu_need_what_was_measured(stored: int, rows: int, measured: float) -> None:
    """SmolLM2-135M, rank 16, bfloat16, rows of 392 tokens: memory above the loaded libraries."""
    training = TrainingConfig(precision="bfloat16", lora=LoraConfig(rank=16))
    sizes = {"row_tokens": 392, "gradient_checkpointing": False, "training": training}
    found = estimate(job(replace(SMOL, stored_bytes=stored), **sizes)).total(rows) / GB
    assert found == pytest.approx(measured, rel=0.1)


WIDE = DecoderShape(
    hidden=128, layers=4, intermediate=320, heads=4, kv_heads=4, vocabulary=49152, tied=False,
    attention_bias=True, stored_bytes=4, head=32,
)  # fmt: skip
NARROW = replace(WIDE, hidden=320, layers=6, intermediate=800, vocabulary=8192, head=80)


@mutation(
    "RWR keeps its logits through a step", ESTIMATE, "_WHOLE_LOGITS = 20", "_WHOLE_LOGITS = 28"
)
@pytest.mark.parametrize(
    ("shape", "completion", "training", "measured"),
    [
        (WIDE, 128, {}, 0.897),
        (WIDE, 128, {}, 0.994),  # and rolled back to its start, which needs its gradient as well
        (WIDE, 128, {"lora": LoraConfig(rank=8)}, 0.632),
        (WIDE, 128, {"lora": LoraConfig(rank=8), "precision": "bfloat16"}, 0.629),
        (NARROW, 256, {"lora": LoraConfig(rank=8)}, 0.481),  # with MALLOC_MMAP_THRESHOLD_=1000000
    ],
)
def test_rwr_on_a_cpu_needs_what_was_measured(
    shape: DecoderShape, completion: int, training: dict[str, Any], measured: float
) -> None:
    """Random weights of 50 MB, prompts of 64 tokens, 4 of 8 rows: memory above the libraries."""
    settings = TrainingConfig(**training)
    sizes = {"row_tokens": 64 + completion, "completion_tokens": completion, "loss": "rwr"}
    sizes |= {"gradient_checkpointing": False, "training": settings}
    sizes["reference"] = reference_of("bootstrap", settings.lora, moved=False)
    found = estimate(job(shape, leash_tokens=8 * completion, **sizes))
    assert found.total(4) / GB == pytest.approx(measured, rel=0.12)


@mutation(
    "what RWR keeps of the reference is not counted", ESTIMATE,
    "found += 4 * _kept_of_reference(job)", "_kept_of_reference(job)",
)  # fmt: skip
@mutation(
    "states of the reference that RWR keeps are not counted", ESTIMATE,
    "return 0 if job.training.sharded else states", "return 0",
)  # fmt: skip
def test_what_is_kept_of_the_reference_between_steps_counts(tmp_path: Path) -> None:
    """By hand: four bytes each, of 2**24 logprobs at most, else of states of whole rows."""
    sharded = TrainingConfig(device="cuda", processes=2, strategy="fsdp2")
    copies = [
        need(loss="rwr", shape=NARROW, leash_tokens=tokens, leash_rows=3, **more).fixed["copies"]
        for tokens, more in (
            (0, {}), (2048, {}), (2049, {}), (2049, {"training": sharded}),
            (0, {"training": sharded}),
        )
    ]  # fmt: skip
    states = 4 * 3 * job(NARROW).row_tokens * NARROW.hidden
    assert [found - copies[0] for found in copies[:3]] == [0, 2**26, states]
    assert copies[3] == copies[4]
    policy = tiny_checkpoint(tmp_path / "policy", seed=1)
    rows = mixed_rows(6)
    leashed = [len(row["completion_ids"]) for row in rows if row["leash"]]
    made = job_of(rwr_of(tmp_path, "some", rows, policy, policy))
    assert (made.leash_tokens, made.leash_rows) == (sum(leashed), len(leashed))
    run = resolve("tiny")
    found = needed(run, Given(None, None, None))[1].job
    assert found.leash_tokens == run.rwr.kl_rows * run.generation.max_tokens
    assert found.leash_rows == run.rwr.kl_rows


def test_the_head_of_grpo_computes_tiles_of_the_size_that_is_counted() -> None:
    from trl.kernels import chunked_logprob
    from trl.trainer import utils

    assert estimates._TILE == utils._CHUNKED_LOGPROB_CHUNK_SIZE
    assert estimates._TILE_TOKENS == chunked_logprob.TOKEN_CHUNK_SIZE
    cpu = TrainingConfig(precision="bfloat16")
    rows = [job(training=cpu, row_tokens=tokens) for tokens in (4096, 8192)]
    tiles = [estimates._logits(one) for one in rows]
    assert tiles == [31 * 4096 * 32768] * 2  # by hand
    assert estimates._logits(job()) == 2 * 4096 * 32768  # a GPU's kernel works in place


@mutation(
    "the run's own process is not counted", NEEDS, "needed = sum(updates.values()) + own",
    "needed = sum(updates.values())",
)  # fmt: skip
@mutation(
    "updates in turn are counted as if at once", NEEDS,
    "config.execution.updates_at_once == 1", "False",
)  # fmt: skip
def test_a_cpu_holds_both_updates_and_the_run_at_once(tmp_path: Path) -> None:
    sizes = {"hidden_size": 576, "num_hidden_layers": 30, "intermediate_size": 1536}
    sizes |= {"num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152}
    models = models_of(tmp_path / "smol", sizes | {"tie_word_embeddings": True})
    micro = ["grpo.micro_batch_rows=4", "rwr.micro_batch_rows=4"]
    config = resolve("tiny", overrides=["execution.updates_at_once=2", *micro])
    found = needed(config, models)
    at_once = sum(need.estimate.total(4) for need in found) + 3 * 0.7 * GB
    at_once += 4 * found[0].job.shape.parameters  # the run's own process samples
    assert needs.lack_of_memory(config, found, at_once + 1) == ""
    line = needs.lack_of_memory(config, found, at_once - 1)
    assert line.startswith(f"up to {at_once / GB:.3g} GB are needed at once, with rows as long as ")
    assert "(grpo_update " in line and "lower grpo.micro_batch_rows" in line and "\n" not in line
    alone = max(need.estimate.total(4) for need in found) + 2 * 0.7 * GB
    alone += 4 * found[0].job.shape.parameters
    assert f"set execution.updates_at_once=1 ({alone / GB:.3g} GB), training.lora" in line
    config = resolve("tiny", overrides=["execution.updates_at_once=1", *micro])
    assert needs.lack_of_memory(config, found, alone + 1) == ""
    line = needs.lack_of_memory(config, found, alone - 1)
    assert line.startswith(f"up to {alone / GB:.3g} GB are needed at once, with rows as long as ")
    assert "rwr_update" not in line and "updates_at_once" not in line
    placed = config.placement.model_copy(update={"grpo_update": "p", "rwr_update": "p"})
    assert needs.lack_of_memory(config.model_copy(update={"placement": placed}), found, 0) == ""
