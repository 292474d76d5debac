"""LoRA updates, with the real TRL trainers and peft on tiny models.

Invariants: an update changes the adapter and nothing else; its checkpoint is the base's files, byte
for byte, and the adapter; the next update trains the same adapter on, with the KL to its start;
merged on request, it is one model of the same function; the policy without its adapter serves as
the first one, in either update, where the two are equal; trainer checkpoints hold the adapter
alone; an engine samples from the sum; half an adapter, or one of another rank, is refused.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from genenv_core.canonical import file_sha256
from genenv_core.config.load import resolve
from genenv_core.config.sections.training import LoraConfig, TrainingConfig
from genenv_core.engines.transformers.loading import load_model
from genenv_core.errors import ModelError, Stopped, TrainingError
from genenv_core.exchange.external import given_to
from genenv_core.training.policies import reference
from genenv_core.training.requests import TrainerCheckpoints, UpdateResult
from genenv_core.training.updates.table import run_update
from tests.mutations import mutation
from tests.unit.builders_engine import tiny_model, tiny_tokenizer
from tests.unit.plugged import domain_of
from tests.unit.training.builders_training import (
    grpo_of,
    grpo_rows,
    rwr_of,
    rwr_rows,
    tiny_checkpoint,
    weights,
)

RANK, ALPHA = 4, 8.0
ADAPTER = {"adapter_config.json", "adapter_model.safetensors"}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("lora") / "policy", seed=1)


def training(**lora: Any) -> TrainingConfig:
    return TrainingConfig(lora=LoraConfig(**{"rank": RANK, "alpha": ALPHA} | lora))


def grpo(home: Path, checkpoint: Path, name: str, lora: TrainingConfig, **settings: Any) -> Any:
    defaults = {"passes": 1, "micro_batch_rows": 5, "learning_rate": 1e-2}
    rows = grpo_rows(3, 4, sampler=load_model(checkpoint, dtype=torch.float32))
    return grpo_of(home, name, rows, checkpoint, training=lora, seed=5, **defaults | settings)


def rwr_update(home: Path, checkpoint: Path, initial: Path, name: str, lora: Any) -> UpdateResult:
    settings = {"steps": 3, "learning_rate": 1e-2, "micro_batch_rows": 4, "kl_cap": 1e6}
    settings |= {"kl_coef": 1, "training": lora}
    request = rwr_of(home, name, rwr_rows(6), checkpoint, initial, **settings)
    return run_update(request)


def spied(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return a list that fills with the references that updates load."""
    loads, original = list[Path](), reference.load_model

    def spy(path: Path, **options: Any) -> Any:
        loads.append(path)
        return original(path, **options)

    monkeypatch.setattr(reference, "load_model", spy)
    return loads


def files(folder: Path) -> dict[str, str]:
    return {path.name: file_sha256(path) for path in folder.iterdir()}


def function_of(folder: Path) -> torch.Tensor:
    """Return the logits of the model with which an engine samples."""
    ids = torch.arange(2, 22).reshape(2, 10)
    with torch.no_grad():
        return load_model(folder, dtype=torch.float32).eval()(input_ids=ids).logits


def test_an_update_adds_an_adapter_to_files_that_stay_as_they_are(
    tmp_path: Path, policy: Path
) -> None:
    request = grpo(tmp_path, policy, "one", training())
    run_update(request)
    base, made = files(policy), files(request.output)
    assert made.keys() - base.keys() == ADAPTER
    assert {name: made[name] for name in base} == base
    again = request.model_copy(update={"output": tmp_path / "again"})
    run_update(again)
    assert files(again.output) == made  # no path, no clock, no order of a set
    adapter = load_file(request.output / "adapter_model.safetensors")
    down, up = (
        adapter[f"base_model.model.model.layers.0.self_attn.q_proj.lora_{half}.weight"]
        for half in "AB"
    )
    assert down.shape[0] == up.shape[1] == RANK and float(up.abs().max()) > 0
    merged = load_model(request.output, dtype=torch.float32)
    expected = weights(policy)["model.layers.0.self_attn.q_proj.weight"] + ALPHA / RANK * up @ down
    found = merged.get_parameter("model.layers.0.self_attn.q_proj.weight")
    assert torch.allclose(found, expected, atol=1e-6)


@pytest.mark.slow
def test_the_next_update_trains_the_same_adapter_and_its_kl_starts_at_zero(
    tmp_path: Path, policy: Path
) -> None:
    first = grpo(tmp_path, policy, "first", training())
    run_update(first)
    second = grpo(tmp_path, first.output, "second", training(), kl_coef=0.1)
    result = run_update(second)
    # One step, on policy: the reference is the policy with the adapter that it started with.
    assert result.metrics["kl"] == pytest.approx(0, abs=1e-6)
    assert result.metrics["ratio_mean"] == pytest.approx(1, abs=1e-4)
    assert float((function_of(first.output) - function_of(policy)).abs().max()) > 1e-3
    made, before = files(second.output), files(first.output)
    assert {name for name in made if made[name] != before.get(name)} == {
        "adapter_model.safetensors"
    }
    longer = grpo(tmp_path, first.output, "third", training(), kl_coef=0.1, passes=2)
    assert run_update(longer).metrics["kl"] > 1e-6


@pytest.mark.slow
def test_merged_on_request_it_is_one_model_of_the_same_function(
    tmp_path: Path, policy: Path
) -> None:
    apart, merged = (
        grpo(tmp_path, policy, name, training(merge=name == "merged"))
        for name in ("apart", "merged")
    )
    run_update(apart)
    run_update(merged)
    assert files(merged.output).keys() == files(policy).keys()
    assert files(merged.output)["model.safetensors"] != files(policy)["model.safetensors"]
    assert torch.allclose(function_of(apart.output), function_of(merged.output), atol=1e-5)
    after = grpo(tmp_path, merged.output, "after", training(merge=True), kl_coef=0.1)
    assert run_update(after).metrics["kl"] == pytest.approx(0, abs=1e-6)


@pytest.mark.slow
def test_the_policy_without_its_adapter_stands_for_the_initial_one(
    tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied, loads = Path(shutil.copytree(policy, tmp_path / "copied")), spied(monkeypatch)
    shared = rwr_update(tmp_path, policy, copied, "shared", training())
    assert loads == []
    monkeypatch.setattr(reference, "same_base", lambda *_: False)
    apart = rwr_update(tmp_path, policy, copied, "apart", training())
    assert loads == [copied]
    assert shared.metrics == pytest.approx(apart.metrics, rel=1e-5)
    assert shared.metrics["kl_leash"] > 1e-3
    monkeypatch.undo()
    next_one = rwr_update(tmp_path, shared.checkpoint, policy, "next", training())
    assert next_one.metrics["kl_leash"] > shared.metrics["kl_leash"] / 2
    other = tiny_checkpoint(tmp_path / "other", seed=9)
    far = rwr_update(tmp_path, policy, other, "far", training())
    assert far.metrics["kl_leash"] > 10 * shared.metrics["kl_leash"]


@mutation(
    "with adapters, the first checkpoint has the starting one",
    "genenv_core/training/grpo/stored.py", "adapter_name=None if self._to_bootstrap",
    'adapter_name="default" if self._to_bootstrap',
)  # fmt: skip
@pytest.mark.slow
def test_the_kl_of_pi_agent_to_the_first_one_is_along_its_adapter(
    tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_first = {"kl_coef": 0.1, "kl_reference": "bootstrap", "reference": policy}
    one = grpo(tmp_path, policy, "one", training(), **to_first)
    loads = spied(monkeypatch)
    assert run_update(one).metrics["kl"] == pytest.approx(0, abs=1e-6)  # a new adapter adds nothing
    # Trained on: not the adapter that the update starts with, which TRL would keep, but none.
    two = grpo(tmp_path, one.output, "two", training(), **to_first)
    shared = run_update(two)
    assert loads == [] and shared.metrics["kl"] > 1e-4
    made, before = files(two.output), files(one.output)
    assert {name for name in made if made[name] != before.get(name)} == {
        "adapter_model.safetensors"
    }
    monkeypatch.setattr(reference, "same_base", lambda *_: False)
    apart = run_update(two.model_copy(update={"output": tmp_path / "apart"}))
    assert loads == [policy]
    assert shared.metrics == pytest.approx(apart.metrics, rel=1e-4)
    theirs, ours = (
        load_file(tmp_path / name / "adapter_model.safetensors") for name in ("apart", "two")
    )
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-4) for name in theirs)


@mutation(
    "merged adapters stay in what is disabled", "genenv_core/training/policies/reference.py",
    "if not merging and same_base(policy.source, initial):", "if True:",
)  # fmt: skip
@pytest.mark.slow
def test_merged_weights_are_no_longer_those_of_the_first_one(
    tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_first = {"kl_coef": 0.1, "kl_reference": "bootstrap", "reference": policy}
    loads = spied(monkeypatch)
    one = grpo(tmp_path, policy, "one", training(merge=True), **to_first)
    run_update(one)
    assert loads == []
    two = grpo(tmp_path, one.output, "two", training(merge=True), **to_first)
    pulled = run_update(two)
    assert loads == [policy] and pulled.metrics["kl"] > 1e-4
    whole = grpo(tmp_path, one.output, "whole", TrainingConfig(), **to_first)
    assert run_update(whole).metrics["kl"] == pytest.approx(pulled.metrics["kl"], rel=1e-4)


@pytest.mark.slow
def test_the_first_one_may_have_an_adapter_of_its_own(tmp_path: Path, policy: Path) -> None:
    given = grpo(tmp_path, policy, "given", training())
    run_update(given)
    to_first = {"kl_coef": 0.1, "kl_reference": "bootstrap", "reference": given.output}
    for name, lora in (("adapted", training()), ("whole", TrainingConfig())):
        update = grpo(tmp_path, given.output, name, lora, **to_first)
        assert run_update(update).metrics["kl"] == pytest.approx(0, abs=1e-6)


@pytest.mark.slow
def test_trainer_checkpoints_hold_the_adapter_alone_and_are_continued(
    tmp_path: Path, policy: Path
) -> None:
    request = grpo(tmp_path, policy, "whole", training(), passes=3)
    run_update(request)
    checkpoints = TrainerCheckpoints(folder=tmp_path / "progress", seconds=1e6)
    kept = request.model_copy(update={"output": tmp_path / "kept", "checkpoints": checkpoints})
    with pytest.raises(Stopped):
        run_update(kept, lambda: True)
    state = load_file(checkpoints.folder / "checkpoint-1" / "state-00001-of-00001.safetensors")
    assert state and all("lora_" in name for name in state)
    result = run_update(kept)
    assert result.resumed_at == 1
    assert files(kept.output) == files(request.output)


@mutation(
    "a given adapter of another rank is refused in the run", "genenv_core/exchange/external.py",
    "            check_settings(Path(model.path), config.training.lora)\n", "            pass\n",
)  # fmt: skip
@mutation(
    "an update trains an adapter of another rank", "genenv_core/training/policies/lora.py",
    "        check_settings(checkpoint, settings)\n", "",
)  # fmt: skip
@mutation(
    "a given adapter is refused where all weights are trained", "genenv_core/engines/adapters.py",
    "if not settings.rank or settings.merge or", "if",
)  # fmt: skip
def test_adapters_that_do_not_fit_are_refused(tmp_path: Path, policy: Path) -> None:
    first = grpo(tmp_path, policy, "fit", training())
    run_update(first)
    other, message = grpo(tmp_path, first.output, "other", training(rank=2)), "rank 4 and alpha 8"
    with pytest.raises(ModelError, match=rf"has {message}, and training\.lora says rank 2"):
        run_update(other)
    given = tmp_path / "given"
    tokenizer = tiny_tokenizer()
    tiny_model(vocab_size=len(tokenizer) + 1).save_pretrained(given)
    tokenizer.save_pretrained(given)
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copyfile(first.output / name, given / name)
    asked = f"models.agent={given}"
    for one in ("rank=0", "rank=4,training.lora.alpha=8", "rank=2,training.lora.merge=true"):
        fields = f"training.lora.{one}".split(",")
        config = resolve("tiny", overrides=[asked, *fields])
        assert given_to(config, domain_of(config)).agent_model
    config = resolve("tiny", overrides=[asked, "training.lora.rank=2"])
    with pytest.raises(ModelError, match=message):
        given_to(config, domain_of(config))
    (first.output / "adapter_model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"adapter_config\.json without adapter_model\.safe"):
        load_model(first.output, dtype=torch.float32)


@pytest.mark.slow
def test_training_all_weights_from_an_adapter_starts_from_the_sum(
    tmp_path: Path, policy: Path
) -> None:
    first = grpo(tmp_path, policy, "adapted", training())
    run_update(first)
    whole = grpo(tmp_path, first.output, "all", TrainingConfig(), learning_rate=1e-9)
    run_update(whole)
    assert files(whole.output).keys() == files(policy).keys()
    assert torch.allclose(function_of(whole.output), function_of(first.output), atol=1e-5)
    pulled = grpo(tmp_path, first.output, "pulled", TrainingConfig(), kl_coef=0.1)
    with pytest.raises(TrainingError, match=r"has an adapter.*grpo\.kl_coef: set that to 0"):
        run_update(pulled)


@pytest.mark.parametrize("rank", [0, RANK])
@pytest.mark.slow
def test_bfloat16_products_leave_float32_weights_near_those_of_float32(
    tmp_path: Path, policy: Path, rank: int
) -> None:
    """A CPU also computes in bfloat16; the results differ in the third digit."""
    lora = LoraConfig(rank=rank, alpha=ALPHA) if rank else LoraConfig()
    half = TrainingConfig(precision="bfloat16", lora=lora)
    exact = TrainingConfig(lora=lora)
    settings = {"kl_coef": 0.1, "learning_rate": 1e-3}  # one step, before noise adds up
    one, other = (
        run_update(grpo(tmp_path, policy, name, training, **settings))
        for name, training in (("exact", exact), ("half", half))
    )
    assert one.metrics != other.metrics
    to_first = {"kl_reference": "bootstrap", "reference": policy}
    pulled = run_update(grpo(tmp_path, policy, "first", half, **settings, **to_first))
    assert pulled.metrics["kl"] == pytest.approx(0, abs=1e-6)  # computed as the policy is
    for name in ("entropy", "ratio_mean", "grad_norm"):
        assert other.metrics[name] == pytest.approx(one.metrics[name], rel=0.1)
    assert {w.dtype for w in weights_of(tmp_path / "half", rank).values()} == {torch.float32}
    env, env_half = (
        rwr_update(tmp_path, policy, policy, f"env-{name}", training)
        for name, training in (("exact", exact), ("half", half))
    )
    assert env_half.metrics["nll"] == pytest.approx(env.metrics["nll"], rel=0.05)
    assert env_half.metrics["kl_leash"] == pytest.approx(env.metrics["kl_leash"], rel=0.2)


def weights_of(folder: Path, rank: int) -> dict[str, torch.Tensor]:
    return load_file(folder / ("adapter_model.safetensors" if rank else "model.safetensors"))
