"""How far a stage is, how fast it is, and what is left, in words.

Invariants: there is no rate before there is something to measure, which is a quarter of all units
or 32 of them, and one step of training; a rate counts from the last report before the first unit,
which is not 0 where a stage continues; a plain line is due at most once in `LINE_S`; the
parts of a stage are said after each other, and its share in the UI is the mean of theirs.
"""

from __future__ import annotations

import pytest

from flows.shown.prefect_artifacts import Progress
from tasks.stage.progress import LINE_S, RATED_UNITS, Pace, Paces
from tests.mutations import mutation

PROGRESS = "tasks/stage/progress.py"


@mutation(
    "a rate counts the time before the first unit begins", PROGRESS,
    "done <= self.began[0]:", "done < self.began[0]:",
)  # fmt: skip
def test_a_rate_counts_from_the_last_report_before_the_first_unit() -> None:
    pace = Pace()
    assert pace.words(100, 1100, "rows", 20.0) == ""
    assert pace.words(100, 1100, "rows", 50.0) == ""  # nothing done
    assert pace.words(200, 1100, "rows", 51.0) == ""  # too early
    assert pace.words(300, 1100, "rows", 60.0) == "20 a second, about 40 s left"
    assert pace.words(1100, 1100, "rows", 75.0) == "40 a second, about 0 s left"
    assert pace.words(0, 40, "rows", 80.0) == ""  # another count in the same stage
    assert pace.words(20, 40, "rows", 90.0) == "2 a second, about 10 s left"


@mutation(
    "the first of thirty decides how long the rest takes", PROGRESS,
    "min(RATED_UNITS, math.ceil((total - first) / 4))", "1",
)  # fmt: skip
@pytest.mark.parametrize(
    ("first", "total", "enough"),
    [(0, 660, RATED_UNITS), (0, 4 * RATED_UNITS, RATED_UNITS), (0, 30, 8), (0, 5, 2), (20, 30, 3)],
)
def test_a_quarter_or_32_units_name_the_time_left(first: int, total: int, enough: int) -> None:
    pace = Pace()
    assert pace.words(first, total, "items", 0.0) == ""
    for done in range(1, enough):
        assert pace.words(first + done, total, "items", 100.0 * done) == ""
    seconds = 10.0 * (total - first - enough)
    said = pace.words(first + enough, total, "items", 10.0 * enough)
    assert said == f"0.1 a second, about {seconds:.0f} s left"


@mutation(
    "the end of an even update is known late", PROGRESS,
    "1 if unit in EVEN_UNITS else ", "",
)  # fmt: skip
def test_steps_are_even_so_the_first_one_names_the_time_left() -> None:
    pace = Pace()
    assert pace.words(0, 300, "steps", 0.0) == pace.words(1, 300, "steps", 1.0) == ""
    assert pace.words(2, 300, "steps", 4.0) == "0.5 a second, about 596 s left"


@mutation("every report is a line", PROGRESS, "if now - self.said < LINE_S:", "if now < self.said:")
def test_a_plain_line_is_due_once_in_a_while() -> None:
    pace = Pace()
    times = [5.0, 6.0, 5.0 + LINE_S, 6.0 + LINE_S, 5.0 + 2 * LINE_S]
    assert [pace.due(now) for now in times] == [False, False, True, False, True]


@mutation(
    "a part of a stage takes the place of another", PROGRESS,
    "self._words[part] = event.words", "self._words = {part: event.words}",
)  # fmt: skip
def test_the_parts_of_a_stage_are_said_after_each_other() -> None:
    paces, shown = Paces("bootstrap", 0), Progress(None, None)
    shown.advance(paces.event(30, 300, "steps", "pi_agent", "loss 1.250"))
    shown.advance(paces.event(100, 200, "steps", "pi_env"))
    said = "pi_agent: 30 of 300 steps, loss 1.250; pi_env: 100 of 200 steps"
    assert paces.words == said == shown.text
    assert shown.percent == 30.0
    alone = Paces("rollout", 1).event(3, 8, "groups")
    assert alone.words == "3 of 8 groups"
