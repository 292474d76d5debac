"""The claim of a comparison: its table has the numbers that were decided, its figure stands alone.

Invariants: each verdict is a cell, named better or worse exactly when it was decided; the seeds and
the budget are told; the figure is well-formed XML that names no outside, leaves no colour open and
has a line and a name for every arm.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from genenv_core.compare.claim import FIGURE, claim, figure
from genenv_core.compare.judging import judge
from genenv_core.compare.page import PlayedComparison
from genenv_core.compare.results import Played
from genenv_core.config.comparison import Comparison, planned_runs
from tests.unit.compare.builders_compare import comparison, even, played, simulated

EFFECTS = {"genenv": 0.1, "random": 0.07, "static": 0.1}


def made_of(asked: Comparison, runs: list[Played]) -> PlayedComparison:
    return PlayedComparison(
        asked, planned_runs(asked, "/data"), runs, judge(asked, runs), [], "/data"
    )


def test_the_table_has_what_was_decided() -> None:
    made = made_of(comparison(list(EFFECTS), range(10)), simulated(EFFECTS, 10))
    text = claim(made, version="0.1.0")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    cells = {row[0].removeprefix("| "): row[1] for row in rows}
    for verdict in made.judged.of(made.judged.measure):
        found = verdict.difference
        shown = f"{100 * found.mean:+.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"
        assert shown in cells[verdict.other]
    assert cells["random"].endswith("better")
    assert cells["static"].endswith("not decided") and "**" not in cells["static"]
    assert "10 seeds (0 to 9)" in text and "equal attempts" in text
    assert f"({FIGURE})" in text.splitlines()[0]


def test_the_figure_stands_alone() -> None:
    runs = [
        played(arm, seed, [0.1, 0.2 + seed / 100], even(2)) for arm in EFFECTS for seed in (0, 3)
    ]
    made = made_of(comparison(list(EFFECTS), [0, 3]), runs)
    svg = figure(made)
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    open_ = set(re.findall(r"var\((--\w+)\)", svg)) - set(re.findall(r"(--\w+):", svg))
    assert not open_
    assert "http" not in svg.replace("http://www.w3.org/", "")
    texts = "".join(root.itertext())
    assert all(arm in texts for arm in EFFECTS)
    assert "2 seeds (0, 3)" in claim(made, version="1")


def test_without_a_finished_seed_there_is_no_figure_and_an_empty_table() -> None:
    made = made_of(comparison(["genenv", "random"], [0, 1]), [])
    assert figure(made) == ""
    assert claim(made, version="1").count("\n|") == 2
