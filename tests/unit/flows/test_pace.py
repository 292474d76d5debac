"""How fast a stage is, and what is left, as its progress in the UI says it.

Invariants: there is no rate before there is something to measure; a rate counts from the first
report, which is not 0 where a stage continues.
"""

from __future__ import annotations

from flows.shown import Progress


def test_a_rate_counts_from_the_first_report() -> None:
    progress = Progress(None, None)
    assert progress.pace(100, 1100, 50.0) == ""
    assert progress.pace(110, 1100, 51.0) == ""  # too early
    assert progress.pace(100, 1100, 60.0) == ""  # nothing done
    assert progress.pace(300, 1100, 60.0) == ", 20 a second, about 40 s left"
    assert progress.pace(1100, 1100, 75.0) == ", 40 a second, about 0 s left"
