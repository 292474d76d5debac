"""What a comparison makes of its runs, without a Prefect API.

Invariants: the page is on the runs that were played, whatever became of the files they were planned
from; runs are read one by one, since a view over thirty of them takes more memory than a query may.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flows import comparing
from flows.comparing import conclude
from genenv_core.config.comparison import planned_runs, read_comparison
from tests.mutations import mutation


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


@mutation(
    "a comparison opens all of its runs at once", "flows/comparing.py",
    "with open_tables(store, [run.run_id]) as connection:",
    "with open_tables(store, [one.run_id for one in runs]) as connection:",
)  # fmt: skip
@pytest.mark.slow
def test_runs_are_read_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = read_comparison("tiny", {"arms": ["genenv", "random"], "seeds": [0, 1]})
    runs = planned_runs(comparison, str(tmp_path))
    for run in runs:
        comparing.record(run)
    opened: list[Sequence[str]] = []
    real = comparing.open_tables

    def watched(store: Any, ids: Sequence[str]) -> Any:
        opened.append(list(ids))
        return real(store, ids)

    monkeypatch.setattr(comparing, "open_tables", watched)
    conclude(comparison, runs, ["", "no luck", "", ""])
    assert opened == [[run.run_id] for run in runs if run is not runs[1]]
