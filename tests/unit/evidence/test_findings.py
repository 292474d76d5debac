"""What `make findings` says about results.

Invariants: a finding holds only where the numbers say so, and too few seeds decide nothing; less
data counts from the curves and is never made up; the teacher's programs are sound, new and of all
difficulties; a gradient's norm follows the advantages and the mask; rankings go wrong less often
the more attempts there are, and never more than the bound.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from flows.evidence.specs import specs
from genenv_core.config.comparison import planned_runs, read_comparison
from genenv_core.evidence.gradients import group_norm, proposition_1
from genenv_core.evidence.ranking import error_rates, theorem_1
from genenv_core.evidence.runs import (
    Run,
    attempts_ratio,
    calibration,
    efficiency,
    emergence,
    superiority,
)

SEEDS = range(6)


def runs(arm: str, *, tokens: list[float], p_hat: list[float], seeds: range = SEEDS) -> list[Run]:
    """Return runs that differ a little from seed to seed."""
    return [
        Run("desk", arm, seed, 0.5, p_hat, [t * (1 + seed / 1000) for t in tokens],
            [(0.0, 0.0), (100.0, 0.1 + seed / 1000), (200.0, 0.2 + seed / 1000)])
        for seed in seeds
    ]  # fmt: skip


STEADY = [0.9, 0.5, 0.52, 0.48]
RANDOM = runs("random", tokens=[10, 11, 11, 12], p_hat=[0.9, 0.9, 0.9, 0.9])


@pytest.mark.parametrize(
    ("tokens", "p_hat", "seeds", "holds"),
    [
        ([10, 20, 25, 30], STEADY, SEEDS, True),
        ([10, 20, 20, 19], STEADY, SEEDS, False),
        ([10, 20, 25, 30], [0.9, 0.9, 0.5, 0.1], SEEDS, False),
        ([10, 20, 25, 30], STEADY, range(5), None),
    ],
)
def test_answers_must_grow_while_success_stands_still(
    tokens: list[float], p_hat: list[float], seeds: range, holds: bool | None
) -> None:
    found = emergence([*runs("genenv", tokens=tokens, p_hat=p_hat, seeds=seeds), *RANDOM])
    assert found.holds is holds
    assert found.rows[0][:2] == ["desk", "genenv"]
    assert all(chart.svg for chart in found.charts)


def test_growth_counts_from_the_second_epoch() -> None:
    (run,) = runs("genenv", tokens=[10, 20, 25, 30], p_hat=STEADY, seeds=range(1))
    assert run.growth == pytest.approx(0.5)
    assert run.last == pytest.approx(0.5)


def test_every_seed_must_end_near_alpha() -> None:
    own = runs("genenv", tokens=[1, 1, 1, 1], p_hat=STEADY)
    others = [Run("desk", "alpha=0.3", 0, 0.3, [0.5, 0.31, 0.25, 0.39], [1.0], [(0.0, 0.0)])]
    assert calibration(own, others).holds
    off = [Run("desk", "alpha=0.3", 1, 0.3, [0.5, 0.5, 0.4, 0.42], [1.0], [(0.0, 0.0)])]
    found = calibration(own, [*others, *off])
    assert not found.holds
    assert "except: desk, alpha 0.3" in found.verdict
    assert found.rows[-1][-1] == "1 of 2"


@pytest.mark.parametrize(
    ("decisions", "holds"),
    [
        (["better", "better"], True),
        (["better", "not decided"], None),
        (["better", "worse"], False),
        (["better", "too few seeds"], None),
    ],
)
def test_genenv_must_be_better_than_every_arm(decisions: list[str], holds: bool | None) -> None:
    shared = {"measure": "sampled", "mean": 0.1, "low": 0.0, "high": 0.2, "p_holm": 0.03,
              "seeds": 6}  # fmt: skip
    verdicts = [shared | {"other": f"arm{i}", "decision": one} for i, one in enumerate(decisions)]
    verdicts.append(shared | {"other": "x", "measure": "greedy", "decision": "worse"})
    found = superiority({"desk": {"measure": "sampled", "verdicts": verdicts}}, RANDOM)
    assert found.holds is holds
    assert len(found.rows) == 2
    assert ("arm1 on desk" in found.verdict) == (holds is not True)


def test_attempts_are_read_from_the_curves() -> None:
    own = [(0.0, 0.0), (100.0, 0.2), (200.0, 0.3)]
    assert attempts_ratio(own, [(0.0, 0.0), (200.0, 0.1)]) == pytest.approx(4)
    assert attempts_ratio(own, [(0.0, 0.0), (200.0, 0.25)]) == pytest.approx(200 / 150)
    assert attempts_ratio(own, [(0.0, 0.0), (200.0, 0.31)]) == 0
    assert attempts_ratio(own, [(0.0, 0.0), (200.0, -0.1)]) == math.inf


@pytest.mark.parametrize(
    ("ends", "holds", "row"),
    [
        ([0.05, 0.06, 0.07, 0.08, 0.05, 0.06], True, "6 of 6"),
        ([0.05, 0.06, 0.07, 0.08, 0.05, 0.90], None, "5 of 6"),
        ([0.90, 0.90, 0.90, 0.90, 0.90, 0.90], False, "0 of 6"),
        ([0.05, 0.06, 0.07, 0.08, 0.05], None, "5 of 5"),
    ],
)
def test_attempts_are_saved_where_nearly_every_seed_says_so(
    ends: list[float], holds: bool | None, row: str
) -> None:
    own = runs("genenv", tokens=[1], p_hat=[0.5])
    others = [Run("desk", "static", seed, 0.5, [0.5], [1.0], [(0.0, 0.0), (200.0, end)])
              for seed, end in enumerate(ends)]  # fmt: skip
    found = efficiency([*own, *others])
    assert found.holds is holds
    assert [line[4] for line in found.rows] == [row]
    assert ("never" in found.rows[0][3]) == (max(ends) > 0.5)


def test_the_comparisons_can_be_played(tmp_path: Path) -> None:
    for spec in specs(tmp_path, (100, 101, 102, 103), (2, 1)):
        planned = planned_runs(read_comparison(str(spec.write(tmp_path)), {}), str(tmp_path))
        assert len(planned) == len(spec.seeds) * len(spec.arms)
        assert {run.config.epochs for run in planned} == {spec.epochs}
    alphas = {run.config.curriculum.alpha for run in planned_of("alphas", tmp_path)}
    assert alphas == {0.3, 0.5, 0.7}
    own = {run.run_id for run in planned_of("desk", tmp_path) if run.arm == "genenv"}
    again = {run.run_id for run in planned_of("alphas", tmp_path) if run.arm == "alpha=0.5"}
    assert again < own  # played once


def planned_of(name: str, folder: Path) -> list[Any]:
    return planned_runs(read_comparison(str(folder / f"{name}.yaml"), {}), str(folder))


class Tiny(torch.nn.Module):
    """A model whose logits depend on the last token alone."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(
            torch.randn(5, 5, generator=torch.Generator().manual_seed(1))
        )

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        return type("Output", (), {"logits": self.table[input_ids]})


def row(ids: list[int], mask: list[int]) -> dict[str, Any]:
    return {"prompt_ids": [1, 2], "token_ids": ids, "loss_mask": mask}


def test_a_norm_is_that_of_the_policy_gradient() -> None:
    model = Tiny()
    group = [row([3, 4], [1, 1]), row([4], [1])]
    # d(-sum A logp) / d table[a] = A (softmax(table[a]) - onehot(next)), over 3 tokens.
    rates = model.table.softmax(-1)
    wanted = torch.zeros(5, 5)
    for place, following, advantage in ((2, 3, 1.0), (3, 4, 1.0), (2, 4, -1.0)):
        wanted[place] += advantage * (rates[place] - torch.eye(5)[following]) / 3
    assert group_norm(model, group, [1.0, -1.0]) == pytest.approx(float(wanted.norm()), 1e-5)
    assert group_norm(model, group, [2.0, -2.0]) == pytest.approx(2 * float(wanted.norm()), 1e-5)
    assert group_norm(model, group, [0.0, 0.0]) == 0.0
    seen = [row([3, 4], [1, 0]), row([4], [1])]
    assert group_norm(model, seen, [1.0, -1.0]) != pytest.approx(float(wanted.norm()), 1e-3)


@pytest.mark.parametrize(("peaked", "holds"), [(True, True), (False, False)])
def test_the_largest_gradient_must_be_in_the_middle(peaked: bool, holds: bool) -> None:
    def norm(rate: float, index: int) -> float:
        spread = rate * (1 - rate)
        return (spread if peaked else 0.3 - spread) * (1 + index / 100)

    made = {
        k / 8: [(1.0 * (0 < k < 8), norm(k / 8, index)) for index in range(10)] for k in range(9)
    }
    found = proposition_1({"desk": made})
    assert found.holds is holds
    assert len(found.rows) == 9


def test_rankings_are_surer_with_more_attempts_and_below_the_bound() -> None:
    outcomes = {name: [True] * k + [False] * (100 - k)
                for name, k in (("a", 95), ("b", 55), ("c", 20), ("d", 5))}  # fmt: skip
    by_n = error_rates(outcomes, alpha=0.5, beta=8.0, seed=0)
    assert all(error <= bound for error, bound in by_n.values())
    assert by_n[1][0] > by_n[16][0] > by_n[256][0]
    assert theorem_1({"desk": by_n}, {"desk": "a .95"}).holds
    worse = {n: (min(1.0, 2 * bound + 0.1), bound) for n, (_, bound) in by_n.items()}
    assert not theorem_1({"desk": worse}, {"desk": ""}).holds


def test_families_at_one_distance_have_no_ranking() -> None:
    outcomes = {"a": [True, False, False, False], "b": [True, True, True, False],
                "c": [True, False]}  # fmt: skip
    by_n = error_rates(outcomes, alpha=0.5, beta=8.0, seed=0)
    assert by_n[512] == (0.0, pytest.approx(4 * 2.718281828**-16, rel=1e-3))
