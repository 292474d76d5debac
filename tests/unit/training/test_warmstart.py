"""Tiny models made from seed data.

Invariants: the tokenizer is deterministic, loses nothing of the domain's texts, keeps digits
apart, accepts foreign characters and comes back equal from disk through AutoTokenizer; a
transcript's rendering starts with its beginning's; a warm start writes a complete checkpoint, is
bit for bit repeatable with one thread, lowers the loss and leaves torch's settings alone; a domain
without seed data is refused.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from genenv_core.config.sections.models import BootstrapConfig, ModelSizeConfig
from genenv_core.domains.desk import DeskDomain
from genenv_core.errors import ConfigError, NumericalError
from genenv_core.training.warm_start import models as warmstart
from genenv_core.training.warm_start import sft
from genenv_core.training.warm_start.models import (
    END,
    UNKNOWN,
    WarmStartRequest,
    WarmStartResult,
    encode,
    seed_tokenizer,
    warm_start,
)
from genenv_core.training.warm_start.request import RECENT, note_step, noted_steps
from genenv_core.types import Message, Policy
from tests.examples import some
from tests.mutations import mutation

MODELS = "genenv_core/training/warm_start/models.py"
SFT = "genenv_core/training/warm_start/sft.py"

SMALL = ModelSizeConfig(hidden_size=32, layers=1, heads=2, intermediate_size=64)


def _request(output: Path, policy: Policy = "agent", **changes: Any) -> WarmStartRequest:
    settings = BootstrapConfig(
        agent=SMALL, env=SMALL, agent_steps=25, env_steps=25, batch_rows=16
    ).model_copy(update=changes)
    return WarmStartRequest(
        policy=policy, domain_name="desk", output=output, settings=settings, seed=5, threads=1
    )


def _digest(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


@mutation(
    "digits are kept together", MODELS, 'Regex("[0-9]"), "isolated"', 'Regex("[0-9]+"), "isolated"'
)
def test_tokenizer_keeps_the_texts_and_makes_the_scaffold_short() -> None:
    tokenizer = seed_tokenizer(DeskDomain(), 0, 1.0)
    assert len(tokenizer) <= 260
    for task in DeskDomain().heldout_tasks(0, 60):
        for text in (task.prompt, task.ground_truth, task.program):
            ids = tokenizer(text)["input_ids"]
            assert tokenizer.decode(ids) == text
            assert tokenizer.unk_token_id not in ids
            assert all(len(t) == 1 for t in tokenizer.tokenize(text) if any(map(str.isdigit, t)))
        assert len(tokenizer(task.ground_truth)["input_ids"]) <= 7 * task.difficulty + 2


def test_tokenizer_is_deterministic_and_survives_foreign_characters(tmp_path: Path) -> None:
    tokenizer = seed_tokenizer(DeskDomain(), 0, 1.0)
    again = seed_tokenizer(DeskDomain(), 0, 1.0)
    assert tokenizer.backend_tokenizer.to_str() == again.backend_tokenizer.to_str()
    ids = tokenizer("8 bölts\x00 \N{SNOWMAN}\n")["input_ids"]
    assert tokenizer.convert_tokens_to_ids(UNKNOWN) in ids


@mutation(
    "an answer does not learn its end", MODELS, 'f"{answer}{tokenizer.eos_token}" for', "answer for"
)
def test_rendering_of_a_transcript_starts_with_its_beginning() -> None:
    tokenizer = seed_tokenizer(DeskDomain(), 0, 1.0)
    task = DeskDomain().base_tasks(0, 1)[0]
    opening = DeskDomain().agent_messages(task)
    reply: Message = {"role": "assistant", "content": task.ground_truth}
    result: Message = {"role": "tool", "content": "recorded"}

    def render(messages: list[Message]) -> str:
        return str(
            tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        )

    whole = render([*opening, reply, result])
    assert whole.startswith(render(opening) + task.ground_truth + END)
    ((prompt, answer),) = encode(tokenizer, [(opening, task.ground_truth)])
    assert tokenizer.decode(prompt) == render(opening)
    assert answer[-1] == tokenizer.eos_token_id and answer.count(tokenizer.eos_token_id) == 1


@pytest.mark.parametrize("policy", some(("agent", "env"), ("env",)))
def test_warm_start_writes_a_complete_checkpoint(tmp_path: Path, policy: Policy) -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    steps = tmp_path / "steps"
    request = _request(tmp_path / "model", policy).model_copy(update={"steps": steps})
    result = warm_start(WarmStartRequest.model_validate_json(request.model_dump_json()))
    assert WarmStartResult.model_validate_json(result.model_dump_json()) == result
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    done, loss = noted_steps(steps)
    assert result.steps == 25 == done
    assert loss is not None and 0 < loss < math.log(256)
    assert result.checkpoint == request.output
    assert 0 < result.metrics["loss"] < math.log(256) - 1
    names = set(_digest(request.output))
    assert {
        "config.json", "model.safetensors", "generation_config.json", "tokenizer.json",
        "tokenizer_config.json", "chat_template.jinja",
    } <= names  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(request.output)
    tokenizer = AutoTokenizer.from_pretrained(request.output)
    made = seed_tokenizer(DeskDomain(), 5, 1.0)
    # AutoTokenizer replaces the tokenizer of some architectures by the family's own; not of ours.
    assert tokenizer.backend_tokenizer.to_str() == made.backend_tokenizer.to_str()
    assert model.config.vocab_size == len(tokenizer)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert model.dtype == torch.float32 and not model.training
    assert sum(weights.numel() for weights in model.parameters()) == result.metrics["parameters"]


@mutation(
    "the loss that is shown is of all steps", "genenv_core/training/warm_start/request.py",
    "file.seek(max(0, done - RECENT) * losses.itemsize)", "file.seek(0)",
)  # fmt: skip
def test_noted_steps_are_counted_and_their_last_losses_averaged(tmp_path: Path) -> None:
    steps = tmp_path / "steps"
    assert noted_steps(steps) == (0, None)
    for number in range(RECENT + 4):
        note_step(steps, 100.0 if number < 4 else 1.5)
    assert noted_steps(steps) == (RECENT + 4, 1.5)
    with steps.open("ab") as file:
        file.write(b"abc")  # a step that is being written
    assert noted_steps(steps) == (RECENT + 4, 1.5)


@mutation("a tiny model begins anywhere", MODELS, "        torch.manual_seed(seed)\n", "")
@pytest.mark.slow
def test_warm_start_is_bit_for_bit_repeatable_and_follows_the_seed(tmp_path: Path) -> None:
    first = warm_start(_request(tmp_path / "a", agent_steps=5))
    torch.rand(3)  # the process's own generator must not matter
    second = warm_start(_request(tmp_path / "b", agent_steps=5))
    third = warm_start(_request(tmp_path / "c", agent_steps=5).model_copy(update={"seed": 6}))
    assert _digest(first.checkpoint) == _digest(second.checkpoint)
    assert first.metrics == second.metrics
    assert (
        _digest(third.checkpoint)["model.safetensors"]
        != _digest(first.checkpoint)["model.safetensors"]
    )


@pytest.mark.slow
def test_more_steps_lower_the_loss(tmp_path: Path) -> None:
    short = warm_start(_request(tmp_path / "a", "env", env_steps=5))
    longer = warm_start(_request(tmp_path / "b", "env", env_steps=40))
    assert longer.metrics["loss"] < 0.7 * short.metrics["loss"]


@mutation(
    "a warm start goes on from NaN",
    SFT,
    "if not math.isfinite(losses[-1]):",
    "if math.isinf(losses[-1]):",
)
def test_a_loss_that_is_no_number_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nan = torch.tensor(math.nan, requires_grad=True)
    monkeypatch.setattr(sft, "_loss", lambda *_: nan * 1)
    with pytest.raises(NumericalError, match=r"step 1; lower bootstrap\.learning_rate"):
        warm_start(_request(tmp_path / "a"))
    assert not (tmp_path / "a").exists()


def test_a_domain_without_seed_data_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warmstart, "get_domain", lambda *_: object())
    with pytest.raises(ConfigError, match=r"no seed data.*models\.agent"):
        warm_start(_request(tmp_path / "a"))


@mutation(
    "texts outgrow tiny models",
    MODELS,
    "if tokens > MAX_POSITIONS:",
    "if tokens > 2 * MAX_POSITIONS:",
)
@pytest.mark.parametrize(("text", "tokens"), [("ab " * 40_000, "20000"), ("7" * 3_000, "30")])
def test_texts_too_long_for_tiny_models_are_refused(
    text: str, tokens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once where the letters say so; a digit is a token, so fewer of them are too long, too."""
    monkeypatch.setattr(
        DeskDomain, "env_examples", lambda *_: [([{"role": "user", "content": "x"}], text)] * 3
    )
    with pytest.raises(ConfigError, match=rf"texts of {tokens}.* tokens.* 2048 positions.*explain"):
        warm_start(_request(tmp_path / "a"))
    assert not (tmp_path / "a").exists()
