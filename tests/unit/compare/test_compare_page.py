"""The page on a comparison: what it says is what was decided, and nothing in it can run.

Invariants: each verdict, budget and run is on the page with the numbers of the JSON; a failed run
is named with its reason, as text; every arm has a line in each chart; no script, no outside.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

from genenv_core.compare.judging import judge
from genenv_core.compare.page import PlayedComparison, as_values, render, run_page
from genenv_core.compare.results import Played
from genenv_core.config.comparison import Budget, Comparison, planned_runs
from tests.unit.compare.builders_compare import comparison, even, played, simulated

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
EFFECTS = {"genenv": 0.1, "random": 0.07, "base": 0.0}


def made_of(asked: Comparison, runs: list[Played], root: str = "/data") -> PlayedComparison:
    return PlayedComparison(asked, planned_runs(asked, root), runs, judge(asked, runs), [], root)


def page_of(made: PlayedComparison) -> str:
    return render(made, now=NOW, version="0.1.0")


def test_the_page_says_what_was_decided() -> None:
    made = made_of(comparison(list(EFFECTS), range(10)), simulated(EFFECTS, 10))
    page, values = page_of(made), json.loads(json.dumps(as_values(made)))
    text = re.sub(r"<[^>]*>|\s+", " ", page.replace("−", "-"))
    text = re.sub(r"\s+", " ", text)
    assert "genenv &gt; random" in text
    for verdict in values["verdicts"]:
        shown = f"{100 * verdict['mean']:+.1f} points [{100 * verdict['low']:+.1f}"
        assert shown in text
        assert f"{verdict['p_holm']:.3f}" in text
    for run in values["runs"]:
        assert f'href="{run_page(run["run_id"])}"' in page
    assert len(values["runs"]) == 30
    assert text.count("holds 0") == len(values["self_checks"]) == 3
    assert page.count("<svg") == 5
    for index in range(3):  # a line of every arm in every chart
        assert all(f"var(--s{index})" in chart for chart in re.findall(r"<svg.*?</svg>", page))


def test_the_budgets_are_told_where_the_arms_are_read() -> None:
    runs = [
        played("genenv", 0, [0.1, 0.2], even(2) | {Budget.TOKENS: [900, 1234]}),
        played("random", 0, [0.1, 0.2], even(2, each=5)),
    ]
    made = made_of(comparison(["genenv", "random"], [0]), runs)
    row = re.sub(r"<[^>]*>", " ", page_of(made).split('id="budgets"')[1].split("</table>")[0])
    assert re.search(r"genenv\s+random\s+1 of 2\s+10\s+10\s+900\s", row)
    assert re.search(r"random\s+genenv\s+2 of 2\s+10\s+10\s+10\s", row)


def test_a_run_that_failed_is_named_as_text() -> None:
    asked = comparison(list(EFFECTS), range(3))
    runs = [run for run in simulated(EFFECTS, 3) if (run.arm, run.seed) != ("base", 1)]
    hostile = "<script>alert(1)</script> \u202e no memory"
    failures = [("base", 1, hostile)]
    made = PlayedComparison(
        asked, planned_runs(asked, "/data"), runs, judge(asked, runs), failures, "/data"
    )
    page = page_of(made)
    assert "2 of 3 seeds finished by every arm" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in page


def test_nothing_on_the_page_leads_outside() -> None:
    page = page_of(made_of(comparison(list(EFFECTS), range(10)), simulated(EFFECTS, 10)))
    assert "default-src 'none'" in page
    assert not re.search(r"<script|<link|<img|src=|@import|url\((?!#)", page)
    links = re.findall(r'href="([^"]*)"', page)
    assert all(link.startswith(("#", "runs/")) for link in links)


def test_without_any_finished_seed_there_is_a_page_that_says_so() -> None:
    asked = comparison(list(EFFECTS), range(2))
    page = page_of(made_of(asked, []))
    assert "There is nothing to decide" in page
    assert "There is nothing to draw yet" in page
