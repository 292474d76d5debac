"""Weights of given models that could not be loaded, sampled or trained.

Invariants: before any work, and without loading weights, a model that transformers does not know,
that continues no text or has the head of a reward model, whose weights are quantized, cut off, not
fetched, NaN or Inf, or an adapter's alone, and one that a tokenizer's tokens go beyond, are refused
in words that say what to do; a token that only fills rows may be beyond; the engine samples only
what continues from its cache as without, and `doctor` asks that engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken
from transformers import (
    BertConfig,
    BertLMHeadModel,
    GPT2Config,
    GPT2LMHeadModel,
    MambaConfig,
    MambaForCausalLM,
    T5Config,
)

from flows.cli.machines import doctor
from genenv_core.config.sections.training import TrainingConfig
from genenv_core.engines.transformers.engine import TransformersEngine
from genenv_core.engines.transformers.unloaded import bytes_as_float32
from genenv_core.errors import EngineError, ModelError
from genenv_core.exchange.given_models import model_folder, probe_of
from genenv_core.training.policies.weights import load_policy
from genenv_core.types import Policy
from tests.mutations import mutation
from tests.unit.builders_engine import tiny_model, tiny_tokenizer

UNLOADED = "genenv_core/engines/transformers/unloaded.py"
WHERE = "model.safetensors"
KV_CACHE = "genenv_core/engines/transformers/kv_cache.py"
GIVEN = "genenv_core/exchange/given_models.py"
WEIGHTS = "genenv_core/training/policies/weights.py"


def checkpoint(folder: Path, *added: str, pad: str | None = None) -> Path:
    """Return a checkpoint; its tokenizer gained `added` tokens and `pad`, its model none."""
    tokenizer: Any = tiny_tokenizer()
    # The library's class adds its own end token, so one row is left over.
    tiny_model(vocab_size=len(tokenizer) + 1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "tokenizer_config.json").unlink()
    tokenizer.add_tokens([AddedToken("<|endoftext|>", special=True), *added])
    if pad:
        tokenizer.add_special_tokens({"pad_token": pad})
    tokenizer.save_pretrained(folder)
    return folder


def changed(folder: Path, name: str, **values: Any) -> None:
    """Change fields of a JSON file of a checkpoint."""
    path = folder / name
    stored = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(stored | values))


def cut_off(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def spoilt(dtype: torch.dtype, *numbers: float) -> Callable[[Path], None]:
    """Return what saves the weights as `dtype`, with these numbers at the end of one tensor."""

    def spoil(folder: Path) -> None:
        weights = {name: one.to(dtype) for name, one in load_file(folder / WHERE).items()}
        one = weights["model.layers.0.mlp.up_proj.weight"]
        one.view(-1)[-len(numbers) :] = torch.tensor(numbers, dtype=dtype)
        save_file(weights, folder / WHERE, metadata={"format": "pt"})

    return spoil


def config_of(**values: Any) -> Callable[[Path], None]:
    return lambda folder: changed(folder, "config.json", **values)


SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "quantized": (
        config_of(quantization_config={"quant_method": "gptq", "bits": 4}),
        r"are quantized \(gptq, .*cannot be trained: give the checkpoint that it was made from",
    ),
    "unknown": (config_of(model_type="exotic"), "knows no model_type 'exotic'"),
    "untyped": (config_of(model_type=None), "knows no model_type 'None'"),
    "not causal": (
        config_of(**T5Config(architectures=["T5Model"]).to_dict()),
        r"a model of type 't5' \(T5Model\) is no causal language model",
    ),
    "a list": (
        lambda folder: (folder / "config.json").write_text("[]"),
        r"config\.json is no JSON object: it holds \[\]",
    ),
    "wrong types": (config_of(hidden_size="wide"), "no configuration of the model_type 'qwen2'"),
    "cut off": (cut_off, r"model\.safetensors is damaged, or was not fetched to its end .*: fetch"),
    "a pointer": (
        lambda folder: (folder / "model.safetensors").write_text(
            "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9999\n"
        ),
        "is a pointer of git-lfs, not the weights: run `git lfs pull`",
    ),
    "a reward model": (
        config_of(architectures=["Qwen2ForSequenceClassification"]),
        r"saved as Qwen2ForSequenceClassification .*as reward models do.*: give the language model",
    ),
    "NaN": (
        spoilt(torch.float32, 1.0, float("nan")),
        r"safetensors holds NaN or Inf in 1 tensor.*, 1 number.* of model\.layers\.0\.mlp\.up_proj",
    ),
    "Inf": (spoilt(torch.float16, float("inf"), 1.0), r"1 number.*Give an earlier checkpoint"),
    "both": (spoilt(torch.bfloat16, float("-inf"), float("nan")), r"in 1 tensor.*, 2 number"),
    "an end of words": (
        lambda folder: changed(folder, "generation_config.json", eos_token_id="<|im_end|>"),
        r"generation_config\.json names '<|im_end|>', which is no id of a token",
    ),
    "an end that is not embedded": (
        lambda folder: changed(folder, "generation_config.json", eos_token_id=[1, 9999]),
        "a turn ends with token 9999, and the model has 164 tokens",
    ),
}
"""What is done to a checkpoint, and what the refusal says."""


@mutation("quantized weights are taken", UNLOADED, "    if not quantization:\n", "    if True:\n")
@mutation(
    "models that continue no text are taken", UNLOADED,
    "if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:", "if kind is None:",
)  # fmt: skip
@mutation(
    "files of weights are not looked into", UNLOADED,
    "    for path in (*weights, *adapters):\n", "    for path in adapters:\n",
)  # fmt: skip
@mutation(
    "reward models are taken", UNLOADED,
    "[name for name in saved if name in others]", "[name for name in saved if not others]",
)  # fmt: skip
@mutation(
    "weights that are no numbers are taken", UNLOADED,
    "            if bits.max() == exponent:\n", "            if False:\n",
)  # fmt: skip
@mutation(
    "an end token may be a word", "genenv_core/play/chat.py",
    "if type(end) is not int or end < 0]", "if end is None]",
)  # fmt: skip
@mutation(
    "an end token may be beyond the model", UNLOADED,
    "[token for token in used if token >= size]", "[token for token in used if token < 0]",
)  # fmt: skip
@pytest.mark.parametrize("name", SPOILT)
def test_what_could_not_be_loaded_is_refused_before_any_work(tmp_path: Path, name: str) -> None:
    folder = checkpoint(tmp_path / "given")
    assert model_folder(Policy.AGENT, folder)
    spoil, message = SPOILT[name]
    spoil(folder)
    with pytest.raises(ModelError, match=message) as raised:
        model_folder(Policy.AGENT, folder)
    assert str(folder) in str(raised.value)


@mutation(
    "an adapter without its model is said to be nothing", GIVEN,
    "if ADAPTER_CONFIG in names:", "if not names:",
)  # fmt: skip
def test_an_adapter_without_its_model_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"holds an adapter alone .*copy the files of that model"):
        model_folder(Policy.AGENT, tmp_path)


@mutation(
    "tokens beyond the embedding are taken", UNLOADED,
    "if number >= size and (", "if number > 10 * size and (",
)  # fmt: skip
@mutation(
    "a token that only fills rows is refused", UNLOADED,
    "(token not in special or number in used)", "True",
)  # fmt: skip
@mutation(
    "rows are filled with a token that is not embedded", WEIGHTS,
    "        tokenizer.pad_token = tokenizer.eos_token  #", "        pass  #",
)  # fmt: skip
def test_a_tokenizer_may_go_beyond_the_model_by_what_fills_rows_alone(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"1 token\(s\) .*'<tool_call>' \(id 164; .*embeddings\(165"
    ):
        probe_of(Policy.AGENT, checkpoint(tmp_path / "more", "<tool_call>"))
    folder = checkpoint(tmp_path / "filled", pad="[PAD]")
    assert probe_of(Policy.AGENT, folder)[1].ends[0] == "<|im_end|>"
    policy = load_policy(folder, TrainingConfig())
    assert policy.vocabulary == 164 and policy.tokenizer.pad_token_id < policy.vocabulary
    assert policy.pad_token == "[PAD]"  # as which the checkpoint is saved again


def small(vocabulary: int) -> dict[str, Callable[[], Any]]:
    """Return architectures; weights are large enough, and layers many, for each token to count."""
    wide: dict[str, Any] = {"vocab_size": vocabulary, "initializer_range": 0.3}
    bert: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return {
        "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**wide, n_embd=32, n_layer=1, n_head=2)),
        "mamba": lambda: MambaForCausalLM(
            MambaConfig(**wide, hidden_size=32, num_hidden_layers=1, state_size=4)
        ),
        "bert": lambda: BertLMHeadModel(BertConfig(**wide, **bert, intermediate_size=32)),
    }


@mutation(
    "a model that forgets what it read is sampled", KV_CACHE,
    "if not apart > MOST_APART:", "if apart >= 0:",
)  # fmt: skip
@mutation(
    "every model of another family is refused", KV_CACHE,
    "if not apart > MOST_APART:", "if apart < 0:",
)  # fmt: skip
@pytest.mark.parametrize("name", small(0))
def test_the_engine_takes_what_continues_from_its_cache(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    small(100)[name]().save_pretrained(tmp_path)
    if name == "gpt2":
        TransformersEngine.load(tmp_path, threads=1).close()
        return
    with pytest.raises(EngineError, match=f"type '{name}' does not continue a text from its cache"):
        TransformersEngine.load(tmp_path, threads=1)


@mutation(
    "an exponent of bfloat16 is read as one of float16", UNLOADED,
    '"BF16": (np.dtype("<u2"), 0x7F80)', '"BF16": (np.dtype("<u2"), 0x7C00)',
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_the_largest_and_smallest_numbers_of_a_type_are_numbers(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    """The spoilt checkpoints beside this show that each type is looked at."""
    folder, ends = checkpoint(tmp_path / "given"), torch.finfo(dtype)
    spoilt(dtype, ends.max, ends.min, ends.smallest_normal, 0.0)(folder)
    assert model_folder(Policy.AGENT, folder)


@mutation(
    "doctor does not ask the engine", "flows/cli/machines/doctor.py",
    "    if all(one.ok for one in found):\n", "    if False:\n",
)  # fmt: skip
@mutation(
    "doctor loads what does not fit", "flows/cli/machines/doctor.py",
    "    if needed > free:\n", "    if False:\n",
)  # fmt: skip
def test_doctor_asks_the_engine_of_a_run_where_there_is_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoint(tmp_path / "given")
    numbers = sum(one.numel() for one in load_file(folder / WHERE).values())
    assert bytes_as_float32(folder) == 4 * numbers
    *_, asked = doctor.model_checks(folder)
    assert asked.ok and "continues a text from its cache" in asked.detail
    torch.manual_seed(0)
    small(164)["mamba"]().save_pretrained(folder)
    *probed, asked = doctor.model_checks(folder)
    assert all(one.ok for one in probed) and not asked.ok
    assert "a model of type 'mamba' does not continue a text from its cache" in asked.detail
    monkeypatch.setattr(doctor, "_free_memory", lambda: 4.0 * 164)
    *_, left_out = doctor.model_checks(folder)
    assert left_out.ok and left_out.detail.startswith("not tried: ")
