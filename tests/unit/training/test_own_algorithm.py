"""An algorithm of one's own for the agent's update, by the example of docs/algorithm.md.

Invariants: the gradient of a step equals REINFORCE's by hand, for both baselines, with a loss mask,
with a lost attempt, with the KL, over tokens as over rollouts; micro-batches and shared rows change
nothing but rounding; killed after any step, an update ends on the same bits, with adapters too; its
metrics are the described ones; what a loss of one's own may do wrong is refused in a line.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from genenv_core.canonical import file_sha256
from genenv_core.config.sections.training import LoraConfig, TrainingConfig
from genenv_core.errors import ConfigError, GenenvError
from genenv_core.training.own.checking import check_losses
from genenv_core.training.requests import TrainerCheckpoints, UpdateResult
from genenv_core.training.updates.algorithm import advantages_of, check_passes, get_algorithm
from genenv_core.training.updates.own import OwnRequest
from genenv_core.training.updates.table import UPDATES, run_update
from tests.mutations import mutation
from tests.unit.training.builders_training import (
    Gradient,
    grpo_of,
    grpo_rows,
    load,
    noted_gradients,
    relative_error,
    tiny_checkpoint,
    token_logprobs,
)
from tests.unit.training.test_training_resume import Killed, _killed, die_after

EXAMPLE = "docs/examples/reinforce.py"
PLACE = f"{Path(__file__).parents[3] / EXAMPLE}:Reinforce"
TRAINER = "genenv_core/training/own/trainer.py"
CHECKING = "genenv_core/training/own/checking.py"
ALGORITHM = "genenv_core/training/updates/algorithm.py"
SIZE = 4


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("policy") / "agent", seed=1)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[Gradient]:
    return noted_gradients(monkeypatch)


def own(
    home: Path, name: str, rows: list[dict[str, Any]], policy: Path, *,
    algorithm: str = PLACE, options: dict[str, Any] | None = None, **values: Any,
) -> OwnRequest:  # fmt: skip
    fields = {"group_size": SIZE, "max_grad_norm": 1000, "passes": 1} | values
    plain = grpo_of(home, name, rows, policy, **fields)
    return OwnRequest(**dict(plain), algorithm=algorithm, options=options or {})


def expected(
    policy: Path, rows: list[dict[str, Any]], baseline: str = "group", kl_coef: float = 0.0
) -> Gradient:
    """Return the gradient of REINFORCE, by hand, at the weights of the policy."""
    model, start = load(policy), load(policy)
    loss = torch.zeros(())
    for _, members in groupby(rows, key=lambda row: row["group_id"]):
        group = list(members)
        for index, row in enumerate(group):
            others = [one["reward"] for place, one in enumerate(group) if place != index]
            known = others if baseline == "others" else [one["reward"] for one in group]
            advantage = row["reward"] - sum(known) / len(known)
            logps = token_logprobs(model, row)
            with torch.no_grad():
                gap = token_logprobs(start, row)
            gap = gap - logps
            ratio = (logps - torch.tensor(row["logprobs"])).exp()
            token = -advantage * logps + kl_coef * ratio * (gap.exp() - gap - 1)
            loss = loss + (token * torch.tensor(row["loss_mask"])).sum() / len(rows)
    loss.backward()
    return {name: p.grad for name, p in model.named_parameters()}


@mutation(
    "the baselines of REINFORCE are swapped", EXAMPLE,
    'self.options.baseline == "group"', 'self.options.baseline == "others"',
)  # fmt: skip
@mutation(
    "REINFORCE has no baseline", EXAMPLE, "return [[reward - self._baseline(reward, group) for",
    "return [[reward for",
)  # fmt: skip
@mutation(
    "GRPO's advantages are taken for the algorithm's", TRAINER,
    'output["advantages"] = torch.tensor([self._advantages[row] for row in rows], device=device)',
    "pass",
)  # fmt: skip
@mutation(
    "a mean over rollouts is one over tokens", TRAINER,
    '"rollouts": inputs["step_rows"]', '"rollouts": inputs["step_tokens"]',
)  # fmt: skip
@pytest.mark.parametrize("baseline", ["group", "others"])
@pytest.mark.parametrize("micro", [3, 64])
def test_the_gradient_is_that_of_reinforce(
    tmp_path: Path, policy: Path, steps: list[Gradient], baseline: str, micro: int
) -> None:
    rows = grpo_rows(3, SIZE, sampler=load(policy), masked=True)[:-1]  # one attempt has no verdict
    request = own(
        tmp_path, "own", rows, policy, options={"baseline": baseline}, micro_batch_rows=micro
    )
    result = run_update(request)
    assert len(steps) == result.steps == 1
    assert relative_error(steps[0], expected(policy, rows, baseline)) < 1e-5
    assert result.metrics["ratio_mean"] == pytest.approx(1, abs=1e-5)
    optional = {"mismatch_masked"}
    assert {*result.metrics} == {*UPDATES["own"].measures, "grad_norm"} - optional


def test_shared_rows_give_the_same_gradient(
    tmp_path: Path, policy: Path, steps: list[Gradient]
) -> None:
    rows = grpo_rows(2, SIZE, sampler=load(policy))
    run_update(own(tmp_path, "own", rows, policy, training=TrainingConfig(rows="shared")))
    assert relative_error(steps[0], expected(policy, rows)) < 1e-5


@mutation(
    "the KL term is left out of a loss of one's own", TRAINER, "        if self.beta:\n",
    "        if False:\n",
)  # fmt: skip
def test_the_kl_is_added_to_the_loss(tmp_path: Path, policy: Path, steps: list[Gradient]) -> None:
    rows = grpo_rows(2, SIZE, sampler=load(policy))
    request = own(tmp_path, "own", rows, policy, kl_coef=0.5, groups_per_step=1, learning_rate=1e-2)
    result = run_update(request)
    assert result.metrics["kl"] > 1e-4  # of the second step, after the first one moved the policy
    with_kl, steps[:] = list(steps), []
    run_update(own(tmp_path, "none", rows, policy, groups_per_step=1, learning_rate=1e-2))
    assert relative_error(with_kl[0], steps[0]) < 1e-5  # the KL of the start to itself is flat
    assert relative_error(with_kl[1], steps[1]) > 1e-3


@mutation(
    "a mean over tokens is one over rollouts", TRAINER,
    '"tokens": inputs["step_tokens"].clamp(min=1)', '"tokens": inputs["step_rows"]',
)  # fmt: skip
def test_a_mean_over_tokens_divides_by_those_that_count(
    tmp_path: Path, policy: Path, steps: list[Gradient]
) -> None:
    module = tmp_path / "over_tokens.py"
    module.write_text(
        (Path(__file__).parents[3] / EXAMPLE).read_text().replace('"rollouts", 1', '"tokens", 1')
    )
    rows = grpo_rows(2, SIZE, sampler=load(policy), masked=True)
    run_update(own(tmp_path, "own", rows, policy, algorithm=f"{module}:Reinforce"))
    tokens = sum(sum(row["loss_mask"]) for row in rows)
    by_rows = {name: g * len(rows) / tokens for name, g in expected(policy, rows).items()}
    assert relative_error(steps[0], by_rows) < 1e-5


def bits(result: UpdateResult) -> str:
    return file_sha256(result.checkpoint / "model.safetensors")


@pytest.mark.parametrize("lora", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_update_killed_after_any_step_ends_on_the_same_bits(
    tmp_path: Path, policy: Path, lora: bool
) -> None:
    rows = grpo_rows(3, SIZE, sampler=load(policy))
    training = TrainingConfig(lora=LoraConfig(rank=2, merge=True)) if lora else TrainingConfig()
    request = own(tmp_path, "whole", rows, policy, groups_per_step=1, training=training)
    whole = run_update(request)
    for step in (1, 2):
        checkpoints = TrainerCheckpoints(folder=tmp_path / f"kept-{step}", seconds=0)
        again = {"output": tmp_path / f"out-{step}", "checkpoints": checkpoints}
        killed = request.model_copy(update=again)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
            die_after(step, _killed, patch)
            run_update(killed)
        result = run_update(killed)
        assert (result.resumed_at, bits(result)) == (step, bits(whole))
        assert result.metrics == whole.metrics


class Plain:
    """A sound algorithm, to be spoilt."""

    mean_over: Any = "tokens"
    most_passes: Any = None

    def advantages(self, groups: Any) -> Any:
        return groups

    def losses(self, batch: Any) -> Any:
        return -batch.advantages[:, None] * batch.logprobs


def spoilt(**parts: Any) -> Any:
    return type("Spoilt", (Plain,), parts)()


FAULTS: list[tuple[dict[str, Any], str]] = [
    (
        {"losses": lambda self, batch: batch.logprobs.sum()},
        r"losses returned \(\) for rows",
    ),
    ({"losses": lambda self, batch: 1.0}, "losses returned float for rows"),
    ({"losses": lambda self, batch: batch.old_logprobs}, "losses has no gradient"),
    ({"losses": lambda self, batch: batch.logprobs / 0}, "not finite"),
    ({"losses": lambda self, batch: batch.logprobs * torch.rand(1)}, "two results for one batch"),
    ({"losses": lambda self, batch: batch.logprobs - batch.logprobs.mean()}, "beside other rows"),
    ({"losses": lambda self, batch: batch.nothing}, "losses failed with AttributeError"),
    ({"advantages": lambda self, groups: [[0.0]]}, r"numbers for groups of \[3, 3\] rewards"),
    ({"advantages": lambda self, groups: [[float("nan")] * 3] * 2}, "return finite numbers"),
    ({"advantages": lambda self, groups: 1 / 0}, "advantages failed with ZeroDivisionError"),
]


@mutation(
    "a loss may depend on its micro-batch", CHECKING,
    "if not torch.allclose(losses[counted], alone[counted], rtol=1e-4, atol=1e-6):", "if False:",
)  # fmt: skip
@mutation(
    "a loss may be random", CHECKING,
    "if not torch.equal(losses[counted], again[counted]):", "if False:",
)  # fmt: skip
@mutation("a loss may be constant", CHECKING, "if not losses.requires_grad:", "if False:")
@mutation(
    "advantages may be infinite", ALGORITHM, "if not all(map(math.isfinite, group)):", "if False:",
)  # fmt: skip
@mutation(
    "rewards may have no advantage", ALGORITHM,
    "if [len(group) for group in made] != sizes:", "if False:",
)  # fmt: skip
@pytest.mark.parametrize(("parts", "message"), FAULTS)
def test_a_faulty_loss_is_refused_in_a_line(parts: dict[str, Any], message: str) -> None:
    check_losses("sound", Plain())
    with pytest.raises(GenenvError, match=message) as refused:
        check_losses("mine.py:Mine", spoilt(**parts))
    assert "agent_update.algorithm 'mine.py:Mine'" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_advantages_are_the_stored_ones() -> None:
    algorithm = get_algorithm(PLACE, {"baseline": "others"})
    made = advantages_of(PLACE, algorithm, [[1.0, 0.0, 0.5], [2.0]])
    assert made == [[0.75, -0.75, 0.0], [0.0]]


@mutation("a loss is used off its policy", ALGORITHM, "passes > most", "False")
def test_more_passes_than_the_loss_is_right_for_are_refused() -> None:
    algorithm = get_algorithm(PLACE, {})
    check_passes(PLACE, algorithm, 1)
    with pytest.raises(ConfigError, match=r"grpo.passes is 2, .* set grpo.passes=1"):
        check_passes(PLACE, algorithm, 2)
    check_passes(PLACE, SimpleNamespace(most_passes=None), 9)  # type: ignore[arg-type]
