"""What `make verify-learning` says about results.

Invariants: a run's summary takes its last epochs and those from the sixth on; each expectation is
met at its edge and not below; a method that is not surely above another one fails.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.bench.learning import Result, expectations, judge, shown, summary

GOOD = Result(
    seed=100,
    gain=0.1,
    greedy_gain=0.05,
    last_p_hat=0.5,
    last_written=0.7,
    alpha_inside=4,
    settled=7,
    tokens=(10.0, 14.0),
    share_signal=0.5,
    weights=(0.1, 3.0, 0.4),
    rollouts=100,
    steps=50,
    seconds=60.0,
)


def test_a_summary_is_of_the_last_and_of_the_settled_epochs() -> None:
    def epoch(number: int, **more: Any) -> dict[str, Any]:
        row = {
            "epoch": number,
            "gain": number / 100,
            "greedy_gain": 0.1,
            "p_hat": number / 10,
            "p_hat_written": 0.8,
            "alpha_inside": number > 7,
            "tokens": 10.0 + number,
            "share_signal": 0.5,
            "effective_rows": 20.0,
            "env_rows": 40,
            "weight_low": 0.5 / number,
            "weight_high": float(number),
            "grpo_steps": 3,
        }
        return row | more

    rows = [epoch(1, effective_rows=None), *(epoch(number) for number in range(2, 9))]
    found = summary(7, rows, 99, 1.0)
    assert found == Result(
        seed=7,
        gain=0.08,
        greedy_gain=0.1,
        last_p_hat=pytest.approx(0.7),
        last_written=pytest.approx(0.8),
        alpha_inside=1,
        settled=3,
        tokens=(11.0, 18.0),
        share_signal=0.5,
        weights=(0.5 / 8, 8.0, 0.5),
        rollouts=99,
        steps=24,
        seconds=1.0,
    )
    assert "+0.080" in shown(found) and "1 of 3" in shown(found)


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({}, None),
        ({"last_p_hat": 0.61}, "p_hat of the last"),
        ({"last_p_hat": 0.39}, "p_hat of the last"),
        ({"alpha_inside": 3}, "alpha inside"),
        ({"tokens": (10.0, 13.9)}, "response tokens"),
        ({"share_signal": 0.49}, "groups with signal"),
    ],
)
def test_expectations(change: dict[str, Any], missed: str | None) -> None:
    checks = expectations([replace(GOOD, **change)] * 10)
    failed = [text for text, met in checks.items() if not met]
    assert [text for text in failed if missed and text.startswith(missed)] == failed
    assert bool(failed) is (missed is not None)


def test_p_hat_may_be_off_on_one_seed_of_ten() -> None:
    off = replace(GOOD, last_p_hat=0.7)
    assert all(expectations([off, *[GOOD] * 9]).values())
    assert not all(expectations([off, off, *[GOOD] * 8]).values())


def test_what_is_not_surely_above_fails(capsys: pytest.CaptureFixture[str]) -> None:
    def runs(*gains: float) -> list[Result]:
        return [replace(GOOD, gain=gain) for gain in gains]

    own = runs(0.10, 0.12, 0.14, 0.11, 0.13, 0.15)
    below = runs(0.05, 0.075, 0.09, 0.06, 0.07, 0.09)
    assert judge({"genenv": own, "random": below}) == 0
    assert "met   genenv - random, gain: +0.0525 [" in capsys.readouterr().out
    assert judge({"genenv": own, "random": runs(0.05, 0.2, 0.09, 0.06, 0.2, 0.09)}) == 1
    assert "NOT   genenv - random, gain: +0.0100 [" in capsys.readouterr().out
    assert judge({"genenv": own[:3], "random": below[:3]}) == 1
    assert "too few seeds; 3 more seeds would decide" in capsys.readouterr().out
