"""How far a stage is, how fast it is, and what is left, in words.

Invariants: there is no rate before there is something to measure; a rate counts from the first
report, which is not 0 where a stage continues; a plain line is due at most once in `LINE_S`; the
parts of a stage are said after each other, and its share in the UI is the mean of theirs.
"""

from __future__ import annotations

from flows.shown import Progress
from tasks.stage.progress import LINE_S, RATED_UNITS, Pace, Paces
from tests.mutations import mutation

PROGRESS = "tasks/stage/progress.py"


def test_a_rate_counts_from_the_first_report() -> None:
    pace = Pace()
    assert pace.words(100, 1100, 50.0) == ""
    assert pace.words(200, 1100, 51.0) == ""  # too early
    assert pace.words(100, 1100, 60.0) == ""  # nothing done
    assert pace.words(300, 1100, 60.0) == "20 a second, about 40 s left"
    assert pace.words(1100, 1100, 75.0) == "40 a second, about 0 s left"


@mutation(
    "the first of hundreds decides how long the rest takes", PROGRESS,
    "enough = max(1, min(RATED_UNITS, total // 20))", "enough = 1",
)  # fmt: skip
def test_the_first_of_hundreds_says_no_rate() -> None:
    many, few, some = Pace(), Pace(), Pace()
    assert many.words(0, 660, 0.0) == few.words(0, 5, 0.0) == some.words(0, 200, 0.0) == ""
    assert many.words(RATED_UNITS - 1, 660, 87.0) == ""
    assert many.words(RATED_UNITS, 660, 88.0) == "0.364 a second, about 1727 s left"
    assert few.words(1, 5, 10.0) == "0.1 a second, about 40 s left"
    assert some.words(9, 200, 10.0) == "" != some.words(10, 200, 11.0)


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
