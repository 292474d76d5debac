"""What a comparison makes of its runs, without a Prefect API.

Invariant: the page is on the runs that were played, whatever became of the files they were planned
from.
"""

from __future__ import annotations

from pathlib import Path

from flows.comparing import conclude
from genenv_core.config.comparison import planned_runs, read_comparison


def test_the_page_is_on_the_runs_that_were_played(tmp_path: Path) -> None:
    base, root = tmp_path / "mine.yaml", tmp_path / "root"
    base.write_text("epochs: 3\n")
    comparison = read_comparison(str(base), {"arms": ["genenv", "random"], "seeds": [0]})
    runs = planned_runs(comparison, str(root))
    base.write_text("rwr: {steps: 9}\n")  # somebody edits the file while the runs are at work
    made = conclude(comparison, runs, ["no memory", "no luck"])
    assert made.runs == runs
    assert made.failures == [("genenv", 0, "no memory"), ("random", 0, "no luck")]
    assert (made.root, len(list(root.glob("comparisons/*/index.html")))) == (str(root), 1)
