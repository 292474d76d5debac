"""What the groups of an update teach, on tiny models.

Invariants: a group's alignment is the product of two gradients that autograd computes one by one,
that of its part of the loss and that of the answers' mean probability, for every loss type, with a
loss mask, ratios that the loss clips, several micro-batches and adapters; the parts sum up to the
alignment of the whole loss; tokens that settings leave out teach nothing; nothing is written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from genenv_core.algorithm.advantages import group_advantages
from genenv_core.config.sections.training import LoraConfig, TrainingConfig
from genenv_core.errors import TrainingError
from genenv_core.training.grpo.influence import influence, probabilities
from genenv_core.training.grpo.taught import ScoredAnswer
from genenv_core.training.policies.weights import load_policy
from tests.examples import some
from tests.mutations import mutation
from tests.unit.training.builders_training import (
    grpo_of,
    grpo_rows,
    load,
    random_rows,
    tiny_checkpoint,
    token_logprobs,
)

INFLUENCE = "genenv_core/training/grpo/influence.py"
SIZE = 4


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("policy") / "agent", seed=1)


@pytest.fixture(scope="module")
def rows(policy: Path) -> list[dict[str, Any]]:
    """Three groups with masked tokens, the last one sampled by a policy some way off."""
    older, generator = load(policy), torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in older.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    made = grpo_rows(2, SIZE, sampler=load(policy), seed=3, masked=True)
    late = grpo_rows(1, SIZE, sampler=older, seed=5, masked=True)
    return [*made, *(row | {"group_id": "late"} for row in late)]


def answers_of(count: int) -> list[ScoredAnswer]:
    """Return short answers whose second token is an observation."""
    made = random_rows(count, seed=11, completion=(2, 3))
    return [
        ScoredAnswer(
            row["prompt_ids"],
            row["completion_ids"],
            [int(place != 1) for place in range(len(row["completion_ids"]))],
        )
        for row in made
    ]


ANSWERS = answers_of(5)


def gradient(value: torch.Tensor, model: Any) -> torch.Tensor:
    parameters = [p for p in model.parameters() if p.requires_grad]
    return torch.cat([g.flatten() for g in torch.autograd.grad(value, parameters)])


def expected(model: Any, rows: list[dict[str, Any]], loss_type: str) -> dict[str, float]:
    """Return the alignments by the formula, each group with a gradient of its own."""
    total = torch.zeros(())
    for answer in ANSWERS:
        row = {"prompt_ids": answer.prompt_ids, "completion_ids": answer.token_ids}
        logps = token_logprobs(model, row)
        total = total + logps[torch.tensor(answer.mask).bool()].sum().exp() / len(ANSWERS)
    towards = gradient(total, model)
    tokens = sum(sum(row["loss_mask"]) for row in rows)
    longest = max(len(row["completion_ids"]) for row in rows)
    found: dict[str, float] = {}
    for start in range(0, len(rows), SIZE):
        members = rows[start : start + SIZE]
        part = torch.zeros(())
        advantages = group_advantages([row["reward"] for row in members])
        for row, advantage in zip(members, advantages, strict=True):
            ratio = (token_logprobs(model, row) - torch.tensor(row["logprobs"])).exp()
            clipped = ratio.clamp(0.8, 1.28)
            terms = torch.minimum(ratio * advantage, clipped * advantage)
            own = (terms * torch.tensor(row["loss_mask"])).sum()
            divisor = {
                "grpo": len(rows) * sum(row["loss_mask"]), "dr_grpo": len(rows) * longest
            }.get(loss_type, tokens)  # fmt: skip
            part = part + own / divisor
        found[members[0]["group_id"]] = float(gradient(part, model) @ towards)
    return found


@pytest.mark.parametrize("loss_type", some(("dapo", "grpo", "dr_grpo", "bnpo"), ("dapo", "grpo")))
@mutation(
    "alignment ignores what the loss clips", INFLUENCE,
    "0.0 if ratio > 1 + settings.clip_high else ratio", "ratio",
    by="[dapo]",
)  # fmt: skip
@mutation(
    "alignment has no importance ratio", INFLUENCE,
    "advantage * _ratio(now - then, advantage, settings) * slope", "advantage * slope",
    by="[dapo]",
)  # fmt: skip
@mutation(
    "observations of an answer count", INFLUENCE,
    "(own * mask).sum().exp()", "own.sum().exp()",
    by="[dapo]",
)  # fmt: skip
@mutation(
    "alignment of grpo is over tokens", INFLUENCE,
    '"grpo": rows * max(sum(mask), 1),', '"grpo": max(rollouts.tokens, 1),',
    by="[grpo]",
)  # fmt: skip
@mutation(
    "the derivative is one-sided", INFLUENCE,
    "self._move(-2 * shift)", "self._move(-shift)",
    by="[dapo]",
)  # fmt: skip
def test_alignment_is_the_product_of_both_gradients(
    policy: Path, rows: list[dict[str, Any]], tmp_path: Path, loss_type: str
) -> None:
    request = grpo_of(
        tmp_path, "out", rows, policy, group_size=SIZE, temperature=1.0, loss_type=loss_type,
        micro_batch_rows=5,
    )  # fmt: skip
    before = sorted(tmp_path.rglob("*"))
    found = influence(request, ANSWERS)
    assert sorted(tmp_path.rglob("*")) == before
    wanted = expected(load(policy), rows, loss_type)
    assert [one.group_id for one in found] == list(wanted)
    size = max(map(abs, wanted.values()))
    assert [one.alignment for one in found] == pytest.approx(list(wanted.values()), abs=5e-3 * size)
    assert [one.tokens for one in found] == [
        sum(sum(row["loss_mask"]) for row in rows[start : start + SIZE])
        for start in range(0, len(rows), SIZE)
    ]


@mutation(
    "a shift is the same for all models", INFLUENCE,
    "trial * CHANGE / max(_rms(moved), 1e-12)", "trial",
)  # fmt: skip
def test_with_adapters_the_gradient_is_theirs(
    policy: Path, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    training = TrainingConfig(lora=LoraConfig(rank=2, alpha=4))
    request = grpo_of(
        tmp_path, "out", rows, policy, group_size=SIZE, temperature=1.0, training=training
    )
    with torch.random.fork_rng():
        torch.manual_seed(request.seed)
        model = load_policy(policy, training).model.eval()
    found = influence(request, ANSWERS)
    wanted = expected(model, rows, "dapo")
    size = max(map(abs, wanted.values()))
    assert size > 0
    assert [one.alignment for one in found] == pytest.approx(list(wanted.values()), abs=5e-3 * size)


def test_what_settings_leave_out_teaches_nothing(
    policy: Path, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    cut = [row | {"truncated": row["group_id"] == "g001"} for row in rows]
    request = grpo_of(
        tmp_path, "out", cut, policy, group_size=SIZE, temperature=1.0, mask_truncated=True
    )
    found = {one.group_id: one for one in influence(request, ANSWERS)}
    assert (found["g001"].alignment, found["g001"].tokens) == (0.0, 0)
    assert found["g000"].alignment != 0
    near = grpo_of(
        tmp_path, "near", rows, policy, group_size=SIZE, temperature=1.0, max_mismatch=1e-2
    )
    whole, left = (sum(one.tokens for one in influence(one, ANSWERS)) for one in (request, near))
    kept = {one.group_id: one.tokens for one in influence(near, ANSWERS)}
    assert kept["g000"] > 0 and 0 < left < whole + found["g000"].tokens
    assert kept["late"] < found["late"].tokens


def test_without_an_answer_there_is_no_direction(
    policy: Path, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    request = grpo_of(tmp_path, "out", rows, policy, group_size=SIZE, temperature=1.0)
    with pytest.raises(TrainingError, match="no reference answer of a validation task fits"):
        influence(request, [])


def test_probabilities_are_of_what_the_agent_says(policy: Path) -> None:
    model = load(policy)
    with torch.no_grad():
        wanted = [
            float(
                token_logprobs(
                    model, {"prompt_ids": one.prompt_ids, "completion_ids": one.token_ids}, 0.5
                )[torch.tensor(one.mask).bool()]
                .sum()
                .exp()
            )
            for one in ANSWERS
        ]
    assert probabilities(policy, ANSWERS, 0.5, most=2) == pytest.approx(wanted, rel=1e-4)
