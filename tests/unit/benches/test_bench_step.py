"""The part `step` of `make bench`, on a model of a few thousand weights.

Invariants: genenv and plain torch end on the same weights but for rounding, so they did the same
work; a table has each way, and a ratio for each pair on equal rows; rows are like those of
`laptop`; without a checkpoint there is a random model of the real one's shape.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import Embedding
from torch.nn.modules.module import register_module_forward_pre_hook
from transformers import Qwen2ForCausalLM

from tests.bench import gpu_plan, step
from tests.mutations import mutation

BENCH = "tests/bench/step.py"


def tiny() -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Qwen2ForCausalLM(gpu_plan.config_of("tiny"))


@mutation(
    "plain torch does not measure the KL after a step", BENCH,
    "self.optimizer.zero_grad()\n            if self.case.leash:",
    "self.optimizer.zero_grad()\n            if False:", by="[rwr with KL, all weights, float32]",
)  # fmt: skip
@mutation(
    "plain torch does not clip ratios", BENCH,
    "clipped * self.advantages", "ratio * self.advantages",
)  # fmt: skip
@pytest.mark.slow
@pytest.mark.parametrize("case", step.CASES, ids=lambda case: case.name)
def test_plain_torch_does_the_same_work(case: step.Case) -> None:
    """As many forward passes, to the same weights."""
    passes = 0

    def count(module: Any, _: object) -> None:
        nonlocal passes
        passes += isinstance(module, Embedding)

    rows = step.rows_like_laptop(512)
    before = {name: p.detach().clone() for name, p in tiny().named_parameters()}
    moved: dict[tuple[str, str], torch.Tensor] = {}
    for way in case.ways:
        if way[0] == "TRL":
            continue
        model, passes = tiny(), 0
        with register_module_forward_pre_hook(count):
            assert step.seconds(case, *way, model, rows, steps=3) > 0
        # GRPO looks once, on two short rows, whether TRL's head gives the model's own logprobs.
        # It never scores shared rows with that head.
        looks = 2 if case.update == "grpo" and way == ("genenv", "padded") else 0
        assert passes == (8 if case.leash else 3) + looks, way
        now = {n.replace(".base_layer", ""): p for n, p in model.named_parameters()}
        if case.lora:
            parts = [p.detach().flatten() for name, p in now.items() if "lora" in name]
        else:
            parts = [(now[name] - was).detach().flatten() for name, was in before.items()]
        moved[way] = torch.cat(parts)
    plain = moved["torch", "padded"]
    most = 0.3 if case.precision == "bfloat16" else 0.02
    for way, other in moved.items():
        assert float((other - plain).norm() / plain.norm()) < most, way


def test_a_table_has_every_way_and_the_ratios_on_equal_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = {("genenv", "padded"): 2.0, ("TRL", "padded"): 4.0, ("torch", "padded"): 1.0}
    taken |= {("genenv", "shared"): 3.0, ("torch", "shared"): 2.0}
    turns: list[tuple[str, str]] = []

    def seconds(_: object, who: str, layout: str, *__: object) -> float:
        turns.append((who, layout))
        return taken[who, layout]

    monkeypatch.setattr(step, "seconds", seconds)
    case = step.Case("grpo")
    found = step.measured(case, tiny, 3)
    assert turns == case.ways * 4 and {len(values) for values in found.values()} == {3}
    shown = [" ".join(line.split()) for line in step.lines(case, found)]
    assert shown[0] == "grpo, all weights, float32:" and len(shown) == 1 + 5 + 3
    assert shown[-3:] == [
        "genenv / TRL, padded 0.500 (0.500 to 0.500)",
        "genenv / torch, padded 2.000 (2.000 to 2.000)",
        "genenv / torch, shared 1.500 (1.500 to 1.500)",
    ]
    assert ("TRL", "padded") not in step.Case("rwr", leash=True).ways


def test_rows_begin_alike_in_groups_with_the_same_prompt() -> None:
    rows = step.rows_like_laptop(100)
    assert {len(row["prompt_ids"]) for row in rows} == {26}
    assert {len(row["completion_ids"]) for row in rows} == {3}
    assert rows[0]["prompt_ids"] == rows[7]["prompt_ids"] != rows[8]["prompt_ids"]
    assert rows[0]["prompt_ids"][:16] == rows[8]["prompt_ids"][:16]


def test_without_a_checkpoint_there_is_a_random_model_of_its_shape(tmp_path: Path) -> None:
    what, fresh = step.source(tmp_path)
    model = fresh()
    assert what == "random weights, 2 layers of the shape of SmolLM2"
    assert model.get_input_embeddings().weight.shape == (49152, 576)
