"""What `make verify-learning` says about results.

Invariants: a run's summary takes its last epochs and those from the sixth on; each expectation is
met at its edge and not below; an arm that is not surely above another one fails; a claim replaces
the last one, between its marks and nowhere else.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.evidence import learning
from genenv_core.algorithm.paired import Decision
from genenv_core.evidence.learning import RunSummary, expectations, summary

GOOD = RunSummary(
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
        }
        return row | more

    rows = [epoch(1, effective_rows=None), *(epoch(number) for number in range(2, 9))]
    found = summary(7, rows, {"rollouts": 99, "steps": 24})
    assert found == RunSummary(
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
    )
    assert "+0.080" in found.line and "1 of 3" in found.line


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


@pytest.mark.parametrize("decision", list(Decision))
def test_what_is_not_surely_above_fails(
    decision: Decision, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = {"words": "genenv and random", "measure": "sampled", "decision": decision}
    other = verdict | {"measure": "greedy", "decision": "worse"}  # told, and decides nothing
    values = {"measure": "sampled", "verdicts": [verdict, other]}
    better = decision is Decision.BETTER
    assert learning.judge(values, [GOOD] * 10) == (0 if better else 1)
    said = capsys.readouterr().out
    assert f"{'met  ' if better else 'NOT  '} genenv and random (wanted: better)" in said


def test_a_claim_takes_the_place_of_the_last_one(tmp_path: Path) -> None:
    readme, pages = tmp_path / "README.md", tmp_path / "pages"
    (tmp_path / "docs").mkdir()
    pages.mkdir()
    readme.write_text(f"before\n\n{learning.BEGIN}\nold\n{learning.END}\n\nafter\n")
    for number in (1, 2):
        (pages / "claim.md").write_text(f"![gain](gain.svg)\n\n+{number} points\n")
        (pages / "gain.svg").write_text(f"<svg>{number}</svg>")
        learning.publish(pages, readme)
    between = "![gain](docs/gain.svg)\n\n+2 points\n"
    assert readme.read_text() == (f"before\n\n{learning.BEGIN}\n{between}{learning.END}\n\nafter\n")
    assert (tmp_path / "docs" / "gain.svg").read_text() == "<svg>2</svg>"


def test_a_readme_without_marks_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("nothing\n")
    with pytest.raises(ValueError, match=r"README\.md: a line <!-- claim"):
        learning.with_claim(readme, "")
