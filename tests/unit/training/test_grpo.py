"""GRPO on stored rollouts, with the real TRL trainer on tiny models.

Invariants: the gradient of a step equals a hand-written loss, for every loss type, with a loss
mask, with logprobs of an older policy, with the KL term to the start or to the first checkpoint,
with the two-sided clip and without the rows and tokens that settings leave out; where they leave
out all, nothing moves; settings that nothing reaches change no bit; every group is trained exactly
`passes` times; micro-batches change nothing but rounding; bad rows are refused by name before
training; attempts without a verdict are no part of it; the output is a whole checkpoint, and
nothing else is left or printed.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from pydantic import ValidationError
from transformers import AutoTokenizer

from genenv_core.config.sections.updates import GrpoConfig
from genenv_core.errors import ModelError, NumericalError, TrainingError
from genenv_core.training.grpo import trainer as grpo
from genenv_core.training.grpo.batches import GroupBatches
from genenv_core.training.loop.steps import warmed_up
from genenv_core.training.requests import UpdateResult
from genenv_core.training.updates.grpo import GrpoRequest
from genenv_core.training.updates.table import run_update
from tests.examples import some
from tests.mutations import mutation
from tests.unit.training.builders_training import (
    grpo_of,
    grpo_rows,
    load,
    moved,
    relative_error,
    tiny_checkpoint,
    token_logprobs,
    weights,
    write_grpo,
)

UPDATES = "genenv_core/config/sections/updates.py"
BATCHES = "genenv_core/training/grpo/batches.py"
TRAINER = "genenv_core/training/grpo/trainer.py"
STORED = "genenv_core/training/grpo/stored.py"

SIZE = 4
LOSS_TYPES = ("dapo", "grpo", "dr_grpo", "bnpo")

Step = tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("policy") / "agent", seed=1)


def older(policy: Path) -> Any:
    """Return a model near the policy, whose ratios lie on both sides of the clip range."""
    return moved(policy, 7)


def update(
    tmp_path: Path,
    policy: Path,
    rows: list[dict[str, Any]],
    *,
    temperature: float = 1.0,
    seed: int = 0,
    size: int = SIZE,
    name: str = "out",
    **settings: Any,
) -> UpdateResult:
    values = {"max_grad_norm": 1000, "group_size": size, "temperature": temperature, "seed": seed}
    request = grpo_of(tmp_path, name, rows, policy, **values | settings)
    return run_update(request)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """Return a list that fills with (weights, gradient) of each optimizer step."""
    seen: list[Step] = []
    original = grpo.StoredRolloutTrainer._get_grad_norm

    def record(self: Any, model: Any, grad_norm: Any = None) -> float:
        named = list(model.named_parameters())
        before = {name: p.detach().clone() for name, p in named}
        seen.append((before, {name: p.grad.clone() for name, p in named}))
        return original(self, model, grad_norm)

    monkeypatch.setattr(grpo.StoredRolloutTrainer, "_get_grad_norm", record)
    return seen


def advantages(rows: list[dict[str, Any]], scale: bool) -> list[float]:
    result = []
    for _, group in groupby(rows, key=lambda row: row["group_id"]):
        rewards = [row["reward"] for row in group]
        mean = sum(rewards) / len(rewards)
        std = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1))
        result += [(reward - mean) / (std + 1e-4 if scale else 1) for reward in rewards]
    return result


def expected_gradient(
    policy: Path,
    at: dict[str, torch.Tensor],
    rows: list[dict[str, Any]],
    *,
    loss_type: str = "dapo",
    temperature: float = 1.0,
    kl_coef: float = 0.0,
    scale: bool = True,
    delta: float = math.inf,
    reference: Path | None = None,
) -> tuple[dict[str, torch.Tensor], float]:
    """Return the gradient by the formulas at the weights `at`, and the clipped share.

    The KL is to `reference`; None: to the policy.
    """
    model, leash = load(policy), load(reference or policy)
    model.load_state_dict(at, strict=False)
    tokens = sum(sum(row["loss_mask"]) for row in rows)
    longest = max(len(row["completion_ids"]) for row in rows)
    loss, clipped = torch.zeros(()), 0
    for row, advantage in zip(rows, advantages(rows, scale), strict=True):
        logps = token_logprobs(model, row, temperature)
        ratio = (logps - torch.tensor(row["logprobs"])).exp()
        bounded = ratio.clamp(max=delta)
        chosen = torch.minimum(bounded * advantage, ratio.clamp(0.8, 1.28) * advantage)
        clipped += int(
            sum(
                bool(m)
                and ((a > 1.28 and advantage > 0) or (not 0.8 <= a <= delta and advantage < 0))
                for a, m in zip(ratio.tolist(), row["loss_mask"], strict=True)
            )
        )
        with torch.no_grad():
            anchor = token_logprobs(leash, row, temperature)
        gap = anchor - logps
        mask = torch.tensor(row["loss_mask"])
        token_loss = (-chosen + kl_coef * ratio * (gap.exp() - gap - 1)) * mask
        divisor = {
            "dapo": tokens,
            "bnpo": tokens,
            "grpo": len(rows) * max(int(mask.sum()), 1),
            "dr_grpo": len(rows) * longest,
        }[loss_type]
        loss = loss + token_loss.sum() / divisor
    loss.backward()
    gradient = {name: p.grad for name, p in model.named_parameters()}
    return gradient, clipped / tokens


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
@pytest.mark.parametrize("masked", [False, True])
def test_first_gradient_on_policy_equals_the_hand_written_loss(
    tmp_path: Path, policy: Path, steps: list[Step], loss_type: str, masked: bool
) -> None:
    rows = grpo_rows(3, SIZE, sampler=load(policy), masked=masked)
    result = update(tmp_path, policy, rows, loss_type=loss_type, passes=1)
    expected, clipped = expected_gradient(policy, steps[0][0], rows, loss_type=loss_type)
    assert relative_error(steps[0][1], expected) < 1e-5
    assert clipped == result.metrics["clip_fraction"] == 0
    assert result.metrics["ratio_mean"] == pytest.approx(1, abs=1e-5)


@mutation(
    "lost attempts count in the mean over rows", TRAINER,
    "processes * rows / verdicts", "processes * rows / (len(groups) * size)",
)  # fmt: skip
@mutation(
    "an attempt without a verdict has the reward 0", STORED,
    'math.nan if row["reward"] is None', '0.0 if row["reward"] is None',
)  # fmt: skip
@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_a_group_that_lost_attempts_is_one_of_those_that_have_a_verdict(
    tmp_path: Path, policy: Path, steps: list[Step], loss_type: str
) -> None:
    rows = grpo_rows(3, SIZE, sampler=load(policy))
    left = [row for index, row in enumerate(rows) if index not in (2, 9, 11)]
    result = update(tmp_path, policy, left, loss_type=loss_type, passes=2, micro_batch_rows=3)
    expected, _ = expected_gradient(policy, steps[0][0], left, loss_type=loss_type)
    assert relative_error(steps[0][1], expected) < 1e-5
    rewards = [row["reward"] for row in left]
    assert result.metrics["reward_mean"] == pytest.approx(sum(rewards) / 9)


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_gradient_uses_the_logprobs_of_the_older_policy_that_sampled(
    tmp_path: Path, policy: Path, steps: list[Step], loss_type: str
) -> None:
    rows = grpo_rows(3, SIZE, sampler=older(policy), masked=True, temperature=0.7)
    result = update(
        tmp_path,
        policy,
        rows,
        loss_type=loss_type,
        passes=1,
        temperature=0.7,
        scale_rewards="none",
    )
    expected, clipped = expected_gradient(
        policy, steps[0][0], rows, loss_type=loss_type, temperature=0.7, scale=False
    )
    assert relative_error(steps[0][1], expected) < 1e-5
    assert 0.05 < clipped < 0.95
    assert result.metrics["clip_fraction"] == pytest.approx(clipped)
    assert abs(result.metrics["ratio_mean"] - 1) > 1e-3


def test_second_pass_pulls_to_the_starting_checkpoint(
    tmp_path: Path, policy: Path, steps: list[Step]
) -> None:
    rows = grpo_rows(3, SIZE, sampler=load(policy))
    settings = {"kl_coef": 0.5, "learning_rate": 3e-3}
    result = update(tmp_path, policy, rows, passes=2, micro_batch_rows=5, **settings)
    expected, _ = expected_gradient(policy, steps[1][0], rows, kl_coef=0.5)
    without, _ = expected_gradient(policy, steps[1][0], rows, kl_coef=0.0)
    assert relative_error(steps[1][1], expected) < 1e-5
    assert relative_error(without, expected) > 1e-2
    assert result.metrics["kl"] > 0


def kl_estimate(policy: Path, reference: Path, rows: list[dict[str, Any]], heat: float) -> float:
    """Return the mean of exp(ref - logp) - (ref - logp) - 1 over the sampled tokens."""
    ours, theirs, terms = load(policy), load(reference), list[float]()
    for row in rows:
        with torch.no_grad():
            gaps = (token_logprobs(m, row, heat) for m in (theirs, ours))
            gap = next(gaps) - next(gaps)
        kept = zip(gap.tolist(), row["loss_mask"], strict=True)
        terms += [math.exp(x) - x - 1 for x, counts in kept if counts]
    return sum(terms) / len(terms)


@mutation(
    "the kl to the first checkpoint is to the start", STORED,
    "self.ref_model = frozen(reference, self.accelerator)", "self.ref_model = self.model",
)  # fmt: skip
@mutation(
    "the first checkpoint is scored at temperature 1", STORED,
    "add_fused_lm_head(reference, temperature=self.temperature)", "add_fused_lm_head(reference)",
)  # fmt: skip
@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_the_kl_to_the_first_checkpoint_pulls_from_the_first_step(
    tmp_path: Path, policy: Path, steps: list[Step], loss_type: str
) -> None:
    first = tiny_checkpoint(tmp_path / "first", seed=2)
    rows = grpo_rows(3, SIZE, sampler=older(policy), masked=True, temperature=0.7)
    settings: dict[str, Any] = {"temperature": 0.7, "loss_type": loss_type, "kl_coef": 0.1}
    settings |= {"passes": 1, "micro_batch_rows": 5}
    far = {"kl_reference": "bootstrap", "reference": first}
    near = update(tmp_path, policy, rows, name="near", **settings)
    pulled = update(tmp_path, policy, rows, name="pulled", **settings, **far)
    expected = [
        expected_gradient(
            policy, at, rows, loss_type=loss_type, temperature=0.7, kl_coef=0.1, reference=reference
        )[0]
        for (at, _), reference in zip(steps, (None, first), strict=True)
    ]
    for (_, gradient), wanted in zip(steps, expected, strict=True):
        assert relative_error(gradient, wanted) < 1e-5
    assert relative_error(expected[0], expected[1]) > 1e-1
    assert near.metrics["kl"] == pytest.approx(0, abs=1e-6)
    kl = kl_estimate(policy, first, rows, 0.7)
    assert pulled.metrics["kl"] == pytest.approx(kl, rel=1e-4) and kl > 0.1


@pytest.mark.slow
def test_a_run_starts_on_its_first_checkpoint_and_is_pulled_back_to_it(
    tmp_path: Path, policy: Path
) -> None:
    """In epoch 1 the two references are one; both are the weights before the update."""
    rows = grpo_rows(3, SIZE, sampler=load(policy))
    settings = {"kl_coef": 0.5, "learning_rate": 3e-3, "passes": 2}
    start = update(tmp_path, policy, rows, name="start", **settings)
    first = {"kl_reference": "bootstrap", "reference": policy}
    same = update(tmp_path, policy, rows, name="same", **settings, **first)
    assert same.metrics == start.metrics and same.metrics["kl"] > 0
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("start", "same")]
    assert files[0] == files[1]


@mutation(
    "a reference that nothing pulls to is accepted", UPDATES,
    'if self.kl_reference != "start" and not self.kl_coef:', "if False:",
)  # fmt: skip
def test_the_reference_belongs_to_the_setting_that_asks_for_it(
    tmp_path: Path, policy: Path
) -> None:
    message = r"grpo\.kl_reference bootstrap does nothing with grpo\.kl_coef 0: set a kl_coef"
    with pytest.raises(ValidationError, match=message):
        GrpoConfig(kl_reference="bootstrap")
    rows, first = grpo_rows(2, SIZE, sampler=load(policy)), tmp_path / "first"
    asked = {"kl_coef": 0.1, "kl_reference": "bootstrap", "group_size": SIZE}
    assert grpo_of(tmp_path, "own", rows, policy, kl_coef=0.1).models == [policy]
    given = grpo_of(tmp_path, "given", rows, policy, reference=first, **asked)
    assert given.models == [policy, first]
    with pytest.raises(ValidationError, match="give the checkpoint of pi_agent\\^0 with bootstrap"):
        grpo_of(tmp_path, "lost", rows, policy, **asked)
    with pytest.raises(ValidationError, match="and none with start"):
        grpo_of(tmp_path, "unused", rows, policy, reference=first, kl_coef=0.1)


def test_another_vocabulary_of_the_reference_is_refused(tmp_path: Path, policy: Path) -> None:
    other = tiny_checkpoint(tmp_path / "other", vocabulary=44)
    settings = {"kl_coef": 0.1, "kl_reference": "bootstrap", "reference": other}
    message = r"pi_agent has a vocabulary of 40 and its initial .* of 44"
    with pytest.raises(TrainingError, match=message):
        update(tmp_path, policy, grpo_rows(2, SIZE, sampler=load(policy)), **settings)


@mutation("delta is not passed on", TRAINER, '"delta": settings.delta', '"delta": None')
def test_delta_bounds_the_ratio_where_the_advantage_is_negative(
    tmp_path: Path, policy: Path, steps: list[Step]
) -> None:
    rows = grpo_rows(3, SIZE, sampler=older(policy), masked=True)
    result = update(tmp_path, policy, rows, passes=1, delta=1.4)
    expected, clipped = expected_gradient(policy, steps[0][0], rows, delta=1.4)
    without, fewer = expected_gradient(policy, steps[0][0], rows)
    assert relative_error(steps[0][1], expected) < 1e-5
    assert relative_error(without, expected) > 1e-2
    assert fewer < clipped == pytest.approx(result.metrics["clip_fraction"])


@mutation(
    "delta may undercut the upper clip", UPDATES,
    "self.delta <= 1 + self.clip_high", "self.delta < 1",
)  # fmt: skip
def test_delta_is_above_the_upper_clip() -> None:
    assert GrpoConfig(clip_high=0.25, delta=1.5).delta == 1.5
    message = r"grpo\.delta is 1\.25 and must be above 1 \+ grpo\.clip_high = 1\.25"
    with pytest.raises(ValidationError, match=message):
        GrpoConfig(clip_high=0.25, delta=1.25)


@mutation(
    "truncated rollouts stay in the loss", BATCHES,
    "if not request.settings.mask_truncated:", "if True:",
)  # fmt: skip
@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_a_truncated_rollout_has_no_loss_and_still_a_reward(
    tmp_path: Path, policy: Path, steps: list[Step], loss_type: str
) -> None:
    rows = grpo_rows(3, SIZE, sampler=older(policy), masked=True)
    for index in (1, 4, 5, 6, 7):  # one rollout of the first group, all of the second
        rows[index] |= {"truncated": True, "logprobs": [-400.0] * len(rows[index]["logprobs"])}
    settings = {"loss_type": loss_type, "passes": 1, "micro_batch_rows": 2}
    update(tmp_path, policy, rows, mask_truncated=True, **settings)
    silent = [
        row
        | {"loss_mask": [m * (not row["truncated"]) for m in row["loss_mask"]]}
        | ({"logprobs": [0.0] * len(row["logprobs"])} if row["truncated"] else {})
        for row in rows
    ]
    expected, _ = expected_gradient(policy, steps[0][0], silent, loss_type=loss_type)
    assert relative_error(steps[0][1], expected) < 1e-5


@mutation(
    "a step without a counted token divides by it", TRAINER, "tokens.clamp(min=1)}", "tokens}"
)
@pytest.mark.parametrize("loss_type", some(LOSS_TYPES, ("grpo",)))
@pytest.mark.parametrize("setting", [{"mask_truncated": True}, {"max_mismatch": 0.01}])
def test_an_update_whose_rows_are_all_left_out_moves_nothing(
    tmp_path: Path, policy: Path, loss_type: str, setting: dict[str, Any]
) -> None:
    rows = grpo_rows(2, SIZE, sampler=load(policy))
    for row in rows:
        row |= {"truncated": True, "logprobs": [-90.0] * len(row["logprobs"])}
    result = update(tmp_path, policy, rows, loss_type=loss_type, groups_per_step=1, **setting)
    after = weights(result.checkpoint)
    assert all(torch.equal(p, after[name]) for name, p in weights(policy).items())
    assert all(math.isfinite(value) for value in result.metrics.values())
    assert result.metrics["loss"] == result.metrics["grad_norm"] == result.metrics["entropy"] == 0
    assert result.metrics["reward_mean"] > 0


@mutation(
    "only tokens that became more likely are a mismatch", BATCHES,
    "abs(a - b) <= most", "b - a <= most",
)  # fmt: skip
@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_tokens_far_from_the_engines_logprobs_have_no_loss_in_any_step(
    tmp_path: Path, policy: Path, steps: list[Step], loss_type: str
) -> None:
    rows = grpo_rows(3, SIZE, sampler=older(policy), masked=True, temperature=0.7)
    rows[2]["logprobs"][0] = -400.0  # a ratio that overflows
    settings: dict[str, Any] = {"learning_rate": 1e-2, "micro_batch_rows": 5, "passes": 2}
    settings |= {"temperature": 0.7, "loss_type": loss_type, "max_mismatch": 0.8, "kl_coef": 0.1}
    result = update(tmp_path, policy, rows, **settings)

    def near(at: dict[str, torch.Tensor]) -> list[dict[str, Any]]:
        model, kept = load(policy), []
        model.load_state_dict(at, strict=False)
        for row in rows:
            with torch.no_grad():
                now = token_logprobs(model, row, 0.7).tolist()
            gaps = [abs(a - b) for a, b in zip(now, row["logprobs"], strict=True)]
            mask = [m * (gap <= 0.8) for m, gap in zip(row["loss_mask"], gaps, strict=True)]
            logprobs = [p if m else 0.0 for p, m in zip(row["logprobs"], mask, strict=True)]
            kept.append(row | {"loss_mask": mask, "logprobs": logprobs})
        return kept

    counted = near(steps[0][0])
    for at, gradient in steps:
        expected, _ = expected_gradient(
            policy, at, counted, loss_type=loss_type, temperature=0.7, kl_coef=0.1
        )
        assert relative_error(gradient, expected) < 1e-4
    later = [row["loss_mask"] for row in near(steps[1][0])]
    assert later != [row["loss_mask"] for row in counted]
    sampled, left = (sum(sum(row["loss_mask"]) for row in some) for some in (rows, counted))
    assert result.metrics["mismatch_masked"] == pytest.approx(1 - left / sampled)
    assert 0.1 < result.metrics["mismatch_masked"] < 0.9


def test_bounds_that_nothing_reaches_change_no_bit(tmp_path: Path, policy: Path) -> None:
    rows = grpo_rows(3, SIZE, sampler=older(policy), masked=True)
    plain = update(tmp_path, policy, rows, name="plain")
    wide = {"delta": 1000, "mask_truncated": True, "max_mismatch": 100}
    bounded = update(tmp_path, policy, rows, name="bounded", **wide)
    assert bounded.metrics == plain.metrics | {"mismatch_masked": 0.0}
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("plain", "bounded")]
    assert files[0] == files[1]


@pytest.mark.parametrize("loss_type", some(LOSS_TYPES, ("grpo",)))
def test_micro_batches_change_only_rounding(
    tmp_path: Path, policy: Path, steps: list[Step], loss_type: str
) -> None:
    rows = grpo_rows(3, SIZE, sampler=older(policy), masked=True)
    whole = update(tmp_path, policy, rows, loss_type=loss_type, passes=1)
    cut = update(tmp_path, policy, rows, loss_type=loss_type, passes=1, micro_batch_rows=5)
    assert len(steps) == 2
    assert relative_error(steps[1][1], steps[0][1]) < 1e-5
    for name in ("loss", "grad_norm", "entropy", "ratio_mean", "ratio_max", "clip_fraction"):
        assert cut.metrics[name] == pytest.approx(whole.metrics[name], rel=1e-4, abs=1e-6)


@mutation(
    "no learning rate is warmed up", "genenv_core/training/loop/steps.py",
    "(step + 1) / (warmup_steps + 1)", "(step + 1) / 1",
)  # fmt: skip
@pytest.mark.slow
def test_the_first_steps_of_an_update_have_a_part_of_the_rate(tmp_path: Path, policy: Path) -> None:
    """Adam's first step moves a weight by the rate, whatever its gradient is."""
    rows, before = grpo_rows(2, SIZE, sampler=load(policy)), weights(policy)

    def moved(warmup_steps: int) -> float:
        """Return how far an update of one step moves the weight that it moves most."""
        settings = {"passes": 1, "learning_rate": 1e-3, "warmup_steps": warmup_steps}
        after = weights(update(tmp_path, policy, rows, **settings).checkpoint)
        return max(float((after[name] - before[name]).abs().max()) for name in before)

    assert [moved(count) for count in (0, 1, 3)] == pytest.approx([1e-3, 5e-4, 2.5e-4], rel=1e-3)
    assert [warmed_up(step, 3) for step in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]


@pytest.mark.parametrize(
    ("groups", "per_step"),
    [
        (5, 2),
        pytest.param(4, 2, marks=pytest.mark.slow),
        (3, 8),
        pytest.param(7, 3, marks=pytest.mark.slow),
    ],
)
def test_every_group_is_trained_passes_times_in_a_new_order(
    tmp_path: Path,
    policy: Path,
    monkeypatch: pytest.MonkeyPatch,
    groups: int,
    per_step: int,
) -> None:
    rows = grpo_rows(groups, SIZE, sampler=load(policy), completion=(6, 9))
    trained: list[tuple[int, ...]] = []
    original = grpo.StoredRolloutTrainer._compute_loss

    def record(self: Any, model: Any, inputs: dict[str, Any]) -> Any:
        kept = inputs["completion_mask"].bool()
        pairs = zip(inputs["completion_ids"], kept, strict=True)
        trained.extend(tuple(ids[mask].tolist()) for ids, mask in pairs)
        return original(self, model, inputs)

    monkeypatch.setattr(grpo.StoredRolloutTrainer, "_compute_loss", record)
    result = update(tmp_path, policy, rows, groups_per_step=per_step, passes=3, micro_batch_rows=3)
    stored = [tuple(row["completion_ids"]) for row in rows]
    assert len(set(stored)) == len(stored)
    assert Counter(trained) == {ids: 3 for ids in stored}
    assert result.steps == 3 * math.ceil(groups / per_step)
    passes = [trained[i : i + len(stored)] for i in range(0, len(trained), len(stored))]
    assert all(set(one) == set(stored) for one in passes)
    assert len({tuple(one) for one in passes}) > 1


def test_a_step_is_normalised_by_its_own_tokens_also_the_smaller_last_one(
    tmp_path: Path, policy: Path, steps: list[Step]
) -> None:
    rows = grpo_rows(3, SIZE, sampler=load(policy))
    update(
        tmp_path, policy, rows, groups_per_step=2, passes=1, micro_batch_rows=3, learning_rate=1e-8
    )
    assert len(steps) == 2
    errors = []
    for left_out in range(3):
        alone = rows[left_out * SIZE : (left_out + 1) * SIZE]
        pair = rows[: left_out * SIZE] + rows[(left_out + 1) * SIZE :]
        found = [expected_gradient(policy, steps[0][0], part)[0] for part in (pair, alone)]
        errors.append(max(relative_error(steps[i][1], found[i]) for i in range(2)))
    assert min(errors) < 1e-4


def test_a_pass_that_skips_a_group_is_an_error(
    tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = GroupBatches.set_epoch

    def forgetful(self: Any, epoch: int) -> None:
        original(self, epoch)
        self.batches = self.batches[:-1]

    monkeypatch.setattr(GroupBatches, "set_epoch", forgetful)
    rows = grpo_rows(3, SIZE, sampler=load(policy))
    with pytest.raises(TrainingError, match="0 row visits instead of 4"):
        update(tmp_path, policy, rows, groups_per_step=1, passes=1)
    assert not (tmp_path / "out").exists()


def test_advantages_are_the_hand_numbers(
    tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = grpo_rows(2, SIZE, sampler=load(policy), completion=(6, 9))
    for row, reward in zip(rows, [1, 0, 0, 0, 0.2, 0.4, 0.6, 0.8], strict=True):
        row["reward"] = reward
    found: dict[tuple[int, ...], float] = {}
    original = grpo.StoredRolloutTrainer._compute_loss

    def record(self: Any, model: Any, inputs: dict[str, Any]) -> Any:
        for ids, mask, value in zip(
            inputs["completion_ids"], inputs["completion_mask"], inputs["advantages"], strict=True
        ):
            found[tuple(ids[mask.bool()].tolist())] = float(value)
        return original(self, model, inputs)

    monkeypatch.setattr(grpo.StoredRolloutTrainer, "_compute_loss", record)
    result = update(tmp_path, policy, rows, passes=1)
    values = [found[tuple(row["completion_ids"])] for row in rows]
    # 1,0,0,0: mean 1/4, std 1/2. 0.2..0.8: mean 1/2, std sqrt(1/15) = 0.258199.
    first = [1.4997, -0.4999, -0.4999, -0.4999]
    second = [-1.161446, -0.387149, 0.387149, 1.161446]
    assert values == pytest.approx([*first, *second], abs=1e-5)
    assert result.metrics["reward_mean"] == pytest.approx(0.375)
    # Squared gaps to 0.375: 0.390625 + 3 * 0.140625 + 0.2625 = 1.075; the root of 1.075 / 7.
    assert result.metrics["reward_std"] == pytest.approx(0.391882, abs=1e-6)


def _set(index: int, **values: Any) -> Any:
    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rows[index] |= values
        return rows

    return change


BAD_ROWS: list[tuple[str, Any, type[Exception], str]] = [
    (
        "row too many",
        lambda rows: [*rows, rows[-1]],
        TrainingError,
        "'g001': expected at most 4 rows, got 5",
    ),
    ("torn group", lambda rows: [*rows[1:], rows[0]], TrainingError, "'g000'.*not adjacent"),
    (
        "empty",
        _set(5, completion_ids=[], logprobs=[], loss_mask=[]),
        TrainingError,
        "'g001'.*empty",
    ),
    ("short logprobs", _set(0, logprobs=[-1.0]), TrainingError, "'g000'.*logprobs.*got 1 and"),
    ("short mask", _set(0, loss_mask=[1]), TrainingError, "'g000'.*loss_mask.*got 1 and"),
    ("no prompt", _set(4, prompt_ids=[]), TrainingError, "'g001': empty prompt"),
    ("token", _set(4, prompt_ids=[40]), TrainingError, "'g001': token id 40.*vocabulary of 40"),
    (
        "nan reward",
        _set(2, reward=math.nan),
        NumericalError,
        "'g000': reward must be finite, got nan",
    ),
    ("no rows", lambda rows: [], TrainingError, "none"),
]


@pytest.mark.parametrize(
    ("change", "error", "message"), [case[1:] for case in BAD_ROWS], ids=[c[0] for c in BAD_ROWS]
)
def test_bad_rows_are_refused_by_group_and_value(
    tmp_path: Path, policy: Path, change: Any, error: type[Exception], message: str
) -> None:
    rows = change(grpo_rows(2, SIZE, sampler=load(policy)))
    with pytest.raises(error, match=message):
        update(tmp_path, policy, rows)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("column", "value", "error", "message"),
    [
        ("logprobs", math.nan, NumericalError, "'g000': logprobs must be finite"),
        ("logprobs", 0.5, TrainingError, "'g000': logprobs above 0, got 0.5"),
        ("loss_mask", 2, TrainingError, "'g000': loss_mask holds more"),
    ],
)
def test_bad_tokens_are_refused(
    tmp_path: Path, policy: Path, column: str, value: Any, error: type[Exception], message: str
) -> None:
    rows = grpo_rows(2, SIZE, sampler=load(policy))
    rows[1][column] = [value, *rows[1][column][1:]]
    with pytest.raises(error, match=message):
        update(tmp_path, policy, rows)


def test_groups_without_signal_or_sampled_tokens_are_refused(tmp_path: Path, policy: Path) -> None:
    rows = grpo_rows(2, SIZE, sampler=load(policy))
    silent = [row | {"loss_mask": [0] * len(row["loss_mask"])} for row in rows]
    with pytest.raises(TrainingError, match="'g000': no sampled token"):
        update(tmp_path, policy, silent)
    for row in rows[SIZE:]:
        row["reward"] = 0.25
    with pytest.raises(TrainingError, match=r"'g001': all rewards equal, no signal, got 0.25"):
        update(tmp_path, policy, rows)


def test_missing_column_and_missing_checkpoint_are_named(tmp_path: Path, policy: Path) -> None:
    rows = grpo_rows(2, SIZE, sampler=load(policy))
    with pytest.raises(ModelError, match=r"nowhere: no config\.json there"):
        update(tmp_path, tmp_path / "nowhere", rows)
    path = write_grpo(tmp_path / "rows.parquet", rows)
    pl.read_parquet(path).drop("loss_mask", "reward").write_parquet(path)
    request = GrpoRequest(
        checkpoint=policy,
        output=tmp_path / "out",
        rows=path,
        settings=GrpoConfig(),
        group_size=SIZE,
        temperature=1,
        seed=0,
        threads=1,
    )
    with pytest.raises(TrainingError, match=r"lack column.*loss_mask, reward"):
        run_update(request)


def test_broken_weights_are_a_numerical_error(tmp_path: Path, policy: Path) -> None:
    rows = grpo_rows(2, SIZE, sampler=load(policy))
    broken = load(policy)
    broken.model.norm.weight.data[0] = math.nan
    broken.save_pretrained(tmp_path / "broken")
    AutoTokenizer.from_pretrained(policy).save_pretrained(tmp_path / "broken")
    with pytest.raises(NumericalError, match="GRPO loss is nan"):
        update(tmp_path, tmp_path / "broken", rows)


def test_output_is_a_whole_checkpoint_and_nothing_else_is_left_or_printed(
    tmp_path: Path, policy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = grpo_rows(2, SIZE, sampler=load(policy))
    torch.manual_seed(3)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    capfd.readouterr()
    result = update(tmp_path, policy, rows, learning_rate=1e-2)
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.parquet"]
    assert result.checkpoint == tmp_path / "out"
    names = {path.name for path in result.checkpoint.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors"} <= names
    before, after = (
        AutoTokenizer.from_pretrained(policy),
        AutoTokenizer.from_pretrained(result.checkpoint),
    )
    assert before.get_vocab() == after.get_vocab()
    assert (before.pad_token, before.eos_token) == (after.pad_token, after.eos_token)
    model, start = load(result.checkpoint), weights(policy)
    assert any(not torch.equal(p, start[name]) for name, p in model.named_parameters())
    prompt = torch.tensor([rows[0]["prompt_ids"]])
    text = model.generate(prompt, max_new_tokens=4, do_sample=False)
    assert text.size(1) > prompt.size(1)
    assert all(math.isfinite(value) for value in result.metrics.values())
    assert 0 < result.metrics["entropy"] < math.log(40)


def test_output_may_not_be_the_input(tmp_path: Path) -> None:
    policy = tiny_checkpoint(tmp_path / "out")
    with pytest.raises(TrainingError, match="also an input"):
        update(tmp_path, policy, grpo_rows(2, SIZE, sampler=load(policy)))
    assert (policy / "config.json").exists()
